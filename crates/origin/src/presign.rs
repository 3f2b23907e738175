//! Addresses at which whoever has them may read one object at the origin itself, for a while.

use forebay_s3::{
    operation::{ObjectId, Operation, ReadObject},
    sigv4::{Signer, Target as SignTarget},
    time::AmzDate,
};
use forebay_store::{Error, Query};
use http::{HeaderMap, Method, header};

use crate::store::OriginStore;

/// How long an address is good for: time to follow a redirect to it, a clock that is off included.
const EXPIRES_SECONDS: u32 = 300;

impl OriginStore {
    /// The URL that reads this object with GET, with these parameters of the client's query; it is
    /// signed with the credentials of this store. `None` where there are none: then the plain
    /// address would read it, if anything does.
    ///
    /// # Errors
    /// Those of asking for credentials, and `InvalidURI` for a query that is none.
    pub async fn presign(&self, object: &ObjectId, query: &Query) -> Result<Option<String>, Error> {
        let read = Operation::GetObject(ReadObject {
            object: object.clone(),
            range: None,
            part_number: None,
        });
        let address = self.address();
        let target = address.target(&read, query)?;
        let now = AmzDate::from_unix(self.clock().unix_seconds());
        let Some(signing) = self.signatory().signing(&now).await? else {
            return Ok(None);
        };
        let signer = Signer {
            credentials: &signing.credentials,
            key: &signing.key,
            now,
        };
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, target.host.clone());
        let path = target.uri.path();
        let sign_target = SignTarget {
            method: &Method::GET,
            path,
            query: target.uri.query(),
            host: target.host_text(),
        };
        let query = signer
            .presign(&sign_target, &headers, EXPIRES_SECONDS)
            .map_err(|error| Error::internal("presign a read at the origin", error))?;
        let scheme = address.scheme();
        Ok(Some(format!(
            "{scheme}://{}{path}?{query}",
            target.host_text()
        )))
    }
}
