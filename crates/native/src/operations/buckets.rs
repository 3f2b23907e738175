//! Operations on buckets.

use forebay_s3::{bucket::BucketName, code::Code, time};
use forebay_store::{Body, Error, Response};
use http::{HeaderName, StatusCode, header};

use super::{Asked, DEFAULT_REGION, Native};
use crate::{
    Engine, answer, attributes,
    listing::Bound,
    refuse,
    xml::{self, Document},
};

/// S3: "`max-buckets` … 1–10000".
const BUCKETS_MAX: usize = 10_000;

impl<E: Engine> Native<E> {
    pub(super) async fn list_buckets(&self, asked: &Asked) -> Result<Response, Error> {
        let prefix = asked.query.get("prefix").unwrap_or_default();
        let after = asked.query.get("continuation-token");
        let buckets_max = match asked.query.get("max-buckets") {
            None => BUCKETS_MAX,
            Some(text) => text
                .parse()
                .ok()
                .filter(|n| (1..=BUCKETS_MAX).contains(n))
                .ok_or_else(|| {
                    refuse::invalid_argument("max-buckets", &text, "Must be 1 to 10000.")
                })?,
        };
        let buckets = self.engine.buckets().await?;
        let mut matching = buckets.into_iter().filter(|bucket| {
            let name = bucket.name.as_str();
            name.starts_with(&*prefix) && after.as_deref().is_none_or(|after| name > after)
        });
        let mut document = Document::new("ListAllMyBucketsResult");
        self.owner_element(&mut document, "Owner");
        document.open("Buckets");
        let mut last = None;
        for bucket in matching.by_ref().take(buckets_max) {
            let created = time::rfc3339_millis(bucket.created_ms);
            document
                .open("Bucket")
                .element("Name", bucket.name.as_str())
                .element("CreationDate", created.as_str())
                .close("Bucket");
            last = Some(bucket.name);
        }
        document.close("Buckets");
        if let (Some(last), Some(_)) = (last, matching.next()) {
            document.element("ContinuationToken", last.as_str());
        }
        if !prefix.is_empty() {
            document.element("Prefix", &prefix);
        }
        Ok(answer::document(document))
    }

    pub(super) async fn head_bucket(&self, bucket: &BucketName) -> Result<Response, Error> {
        self.engine.bucket(bucket).await?;
        let mut response = Response::new(StatusCode::OK);
        let name = HeaderName::from_static("x-amz-bucket-region");
        answer::set(&mut response.headers, Some(name), &self.settings.region);
        Ok(response)
    }

    pub(super) async fn create_bucket(
        &self,
        bucket: &BucketName,
        asked: &Asked,
        body: Body,
    ) -> Result<Response, Error> {
        if !bucket.may_be_created() {
            return Err(Error::refused(Code::InvalidBucketName));
        }
        attributes::refuse_unsupported(&asked.headers)?;
        let (document, _) = body.collect(xml::DOCUMENT_BYTES_MAX).await?;
        if !document.is_empty() {
            xml::read(&document, "CreateBucketConfiguration")?;
        }
        self.engine.create_bucket(bucket).await?;
        let mut response = Response::new(StatusCode::OK);
        answer::set(
            &mut response.headers,
            Some(header::LOCATION),
            &format!("/{bucket}"),
        );
        Ok(response)
    }

    pub(super) async fn delete_bucket(&self, bucket: &BucketName) -> Result<Response, Error> {
        self.engine.delete_bucket(bucket).await?;
        Ok(Response::new(StatusCode::NO_CONTENT))
    }

    pub(super) async fn location(&self, bucket: &BucketName) -> Result<Response, Error> {
        self.engine.bucket(bucket).await?;
        let mut document = Document::new("LocationConstraint");
        if self.settings.region != DEFAULT_REGION {
            document.text(&self.settings.region);
        }
        Ok(answer::document(document))
    }

    pub(super) async fn versioning(&self, bucket: &BucketName) -> Result<Response, Error> {
        self.engine.bucket(bucket).await?;
        Ok(answer::document(Document::new("VersioningConfiguration")))
    }

    pub(super) fn acl(&self) -> Response {
        let mut document = Document::new("AccessControlPolicy");
        self.owner_element(&mut document, "Owner");
        document.open("AccessControlList").open("Grant").raw(
            "<Grantee xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\" \
             xsi:type=\"CanonicalUser\">",
        );
        let owner = &self.settings.owner;
        document
            .element("ID", owner)
            .element("DisplayName", owner)
            .close("Grantee");
        document
            .element("Permission", "FULL_CONTROL")
            .close("Grant")
            .close("AccessControlList");
        answer::document(document)
    }

    pub(super) fn owner_element(&self, document: &mut Document, name: &str) {
        let owner = &self.settings.owner;
        document
            .open(name)
            .element("ID", owner)
            .element("DisplayName", owner)
            .close(name);
    }
}

impl Bound {
    /// A place as an opaque token for clients.
    pub(super) fn to_token(&self) -> String {
        use base64::Engine as _;
        base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(self.as_bytes())
    }

    /// Reads a token.
    pub(super) fn from_token(token: &str) -> Result<Self, Error> {
        use base64::Engine as _;
        base64::engine::general_purpose::URL_SAFE_NO_PAD
            .decode(token)
            .map(Self::from_bytes)
            .map_err(|_| {
                let message = "The continuation token provided is incorrect";
                refuse::invalid_argument("continuation-token", token, message)
            })
    }
}
