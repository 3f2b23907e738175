//! Reads a query once, keeping what tells the operation and its fields.

use std::borrow::Cow;

use super::ClassifyError;
use crate::{
    operation::{Kind, Set, find_parameter},
    uri,
};

/// What the query says the request is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Choice {
    /// The bucket or object itself.
    Plain,
    /// The sub-resource with this bit.
    SubResource(Set),
    /// A sub-resource that S3 had not when the table was written.
    Unknown,
}

/// The parameters that matter here, decoded.
#[derive(Debug)]
pub(super) struct Parameters<'a> {
    pub(super) choice: Choice,
    /// Every known parameter in the query.
    pub(super) seen: Set,
    pub(super) version_id: Option<Cow<'a, str>>,
    pub(super) part_number: Option<Cow<'a, str>>,
    pub(super) upload_id: Option<Cow<'a, str>>,
    pub(super) list_type: Option<Cow<'a, str>>,
    pub(super) prefix: Option<Cow<'a, str>>,
}

impl<'a> Parameters<'a> {
    /// Reads the query; an empty one costs nothing.
    pub(super) fn read(query: &'a str) -> Result<Self, ClassifyError> {
        let mut parameters = Self {
            choice: Choice::Plain,
            seen: 0,
            version_id: None,
            part_number: None,
            upload_id: None,
            list_type: None,
            prefix: None,
        };
        let mut unknown = false;
        let mut sub_resource: Option<(Set, Cow<'a, str>)> = None;
        for (name, value) in uri::query_pairs(query) {
            let Some((bit, kind)) = find_parameter(&name) else {
                unknown |= value.is_empty() && looks_like_sub_resource(&name);
                continue;
            };
            if parameters.seen & bit != 0 {
                return Err(conflict(&name, &name));
            }
            parameters.seen |= bit;
            match &*name {
                "versionId" => parameters.version_id = Some(value),
                "partNumber" => parameters.part_number = Some(value),
                "uploadId" => parameters.upload_id = Some(value),
                "list-type" => parameters.list_type = Some(value),
                "prefix" => parameters.prefix = Some(value),
                _ => {}
            }
            if kind == Kind::SubResource {
                if let Some((_, first)) = sub_resource {
                    return Err(conflict(&first, &name));
                }
                sub_resource = Some((bit, name));
            }
        }
        parameters.choice = match sub_resource {
            // Also beside a known one: nobody here can say which of them counts.
            _ if unknown => Choice::Unknown,
            Some((bit, _)) => Choice::SubResource(bit),
            None => Choice::Plain,
        };
        Ok(parameters)
    }
}

fn conflict(first: &str, second: &str) -> ClassifyError {
    ClassifyError::argument(format!(
        "Conflicting query string parameters: {first}, {second}"
    ))
}

/// Whether an unknown parameter without a value may be a sub-resource of a newer S3. All that S3
/// ever had are letters and hyphens; `x-…` is free for the client's own use, and
/// `X-Amz-…` says how a request was signed. So `?v2` on a web page is none.
fn looks_like_sub_resource(name: &str) -> bool {
    let own = name
        .as_bytes()
        .get(..2)
        .is_some_and(|start| start.eq_ignore_ascii_case(b"x-"));
    let signing = ["AWSAccessKeyId", "Signature", "Expires"].contains(&name);
    let spelled = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphabetic() || b == b'-');
    spelled && !own && !signing
}
