//! What a client sees of a store: all of its buckets, objects and uploads.

use std::collections::{BTreeMap, BTreeSet};

use forebay_store::{
    Error, Store,
    contract::requests::{
        Answer, Builder, attributes, get, get_tags, list_buckets, list_parts, list_uploads, list_v2,
    },
};

/// Buckets by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct World(pub(super) BTreeMap<String, Contents>);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Contents {
    /// By key: headers, tags, parts, bytes.
    pub(super) objects: BTreeMap<String, Vec<String>>,
    /// By id: key and tags of parts.
    pub(super) uploads: BTreeMap<String, Vec<String>>,
}

impl World {
    /// Looks at everything, and at these keys even if they are not listed.
    pub(super) async fn of<S: Store>(store: &S, keys: &[&str]) -> Result<Self, String> {
        let mut world = Self::default();
        for bucket in ask(store, list_buckets()).await?.elements("Name") {
            let contents = Contents::of(store, &bucket, keys).await?;
            world.0.insert(bucket, contents);
        }
        Ok(world)
    }
}

impl Contents {
    async fn of<S: Store>(store: &S, bucket: &str, keys: &[&str]) -> Result<Self, String> {
        let mut contents = Self::default();
        let listed = ask(store, list_v2(bucket)).await?.elements("Key");
        let listed: BTreeSet<&str> = listed.iter().map(String::as_str).collect();
        let all: BTreeSet<&str> = listed.iter().chain(keys).copied().collect();
        for key in all {
            let read = match get(bucket, key).send(store).await {
                Ok(read) => read,
                Err(Error::Refused(refused)) if refused.code.as_str() == "NoSuchKey" => {
                    if listed.contains(key) {
                        return Err(format!("{key} is listed and not there"));
                    }
                    continue;
                }
                Err(error) => return Err(format!("get {key}: {error}")),
            };
            if !listed.contains(key) {
                return Err(format!("{key} is there and not listed"));
            }
            let tags = ask(store, get_tags(bucket, key)).await?.text();
            let seen = ["etag", "last-modified", "content-type", "x-amz-meta-m"];
            let mut seen: Vec<String> = seen.map(|name| read.header(name).to_owned()).into();
            let parts = attributes(bucket, key, "ObjectParts");
            let parts = ask(store, parts).await?.text();
            seen.extend([tags, parts, read.text()]);
            contents.objects.insert(key.to_owned(), seen);
        }
        let uploads = ask(store, list_uploads(bucket)).await?;
        for (key, id) in uploads
            .elements("Key")
            .iter()
            .zip(uploads.elements("UploadId"))
        {
            let parts = ask(store, list_parts(bucket, key, &id)).await?;
            let mut seen = vec![key.clone()];
            seen.extend(parts.elements("ETag"));
            contents.uploads.insert(id, seen);
        }
        Ok(contents)
    }
}

async fn ask<S: Store>(store: &S, request: Builder) -> Result<Answer, String> {
    request.send(store).await.map_err(|error| error.to_string())
}
