//! Operations on the tags of an object.

use forebay_s3::operation::ObjectId;
use forebay_store::{Error, Response};
use http::{HeaderValue, StatusCode, header};

use super::{Native, only_null_version};
use crate::{
    Engine,
    tags::{self, Tags},
};

impl<E: Engine> Native<E> {
    pub(super) async fn tags(&self, object: &ObjectId) -> Result<Response, Error> {
        let record = self.head_record(object).await?;
        let kind = HeaderValue::from_static("application/xml");
        Ok(Response::new(StatusCode::OK)
            .with_header(header::CONTENT_TYPE, kind)
            .with_body(tags::to_document(&record.attributes.tags)))
    }

    pub(super) async fn put_tags(&self, object: &ObjectId, tags: Tags) -> Result<Response, Error> {
        only_null_version(object)?;
        self.engine.set_tags(object, tags).await?;
        Ok(Response::new(StatusCode::OK))
    }

    pub(super) async fn delete_tags(&self, object: &ObjectId) -> Result<Response, Error> {
        only_null_version(object)?;
        self.engine.set_tags(object, Vec::new()).await?;
        Ok(Response::new(StatusCode::NO_CONTENT))
    }
}
