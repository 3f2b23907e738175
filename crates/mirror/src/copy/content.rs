//! Whether two members have the same bytes, where nothing shorter tells.

use std::sync::Arc;

use bytes::{Buf as _, Bytes};
use forebay_s3::operation::{ObjectId, Operation};
use forebay_store::{Body, Store};
use http::{HeaderValue, Method, header};

use super::{Copier, CopyError, Described, Passing};
use crate::ask::{Progress, Trouble, whole};

/// A body that is read piece by piece.
struct Pieces {
    body: Body,
    piece: Bytes,
    progress: Arc<Progress>,
}

impl Copier {
    /// Whether two members have the same bytes under a key, each the version that was seen. Both
    /// are read to the first difference, a piece of each at a time.
    ///
    /// # Errors
    /// [`CopyError::Changed`]; [`CopyError::Source`] for either of them.
    pub(crate) async fn have_same_bytes(
        &self,
        object: &ObjectId,
        (store_a, a): (&dyn Store, &Described),
        (store_b, b): (&dyn Store, &Described),
    ) -> Result<bool, CopyError> {
        if a.size_bytes != b.size_bytes {
            return Ok(false);
        }
        let mut of_a = self.pieces(object, store_a, a).await?;
        let mut of_b = self.pieces(object, store_b, b).await?;
        loop {
            let (has_a, has_b) = (self.fill(&mut of_a).await?, self.fill(&mut of_b).await?);
            if !has_a || !has_b {
                return Ok(has_a == has_b);
            }
            let shared = of_a.piece.len().min(of_b.piece.len());
            if of_a.piece[..shared] != of_b.piece[..shared] {
                return Ok(false);
            }
            of_a.piece.advance(shared);
            of_b.piece.advance(shared);
        }
    }

    async fn pieces(
        &self,
        object: &ObjectId,
        store: &dyn Store,
        seen: &Described,
    ) -> Result<Pieces, CopyError> {
        let operation = Operation::GetObject(whole(object.clone()));
        let mut request = self.ask.request(Method::GET, operation, "");
        if let Ok(etag) = HeaderValue::try_from(seen.etag.as_str()) {
            request.headers.insert(header::IF_MATCH, etag);
        }
        let response = self
            .ask
            .open(store, request)
            .await
            .map_err(CopyError::source)?;
        let progress = Arc::new(Progress::default());
        let what = (seen.size_bytes, seen.whole_checksum());
        let passing = Passing::new(response.body, what, (&self.pace, &progress));
        Ok(Pieces {
            body: Body::stream(passing),
            piece: Bytes::new(),
            progress,
        })
    }

    /// Gets more where nothing is left; whether there is any.
    async fn fill(&self, pieces: &mut Pieces) -> Result<bool, CopyError> {
        while pieces.piece.is_empty() {
            let frame = tokio::time::timeout(self.ask.timeout(), pieces.body.frame()).await;
            match frame {
                Err(_) if pieces.progress.is_waiting() => {}
                Err(_) => return Err(CopyError::Source(Trouble::Unknown)),
                Ok(None) => return Ok(false),
                Ok(Some(frame)) => {
                    let frame = frame.map_err(|error| CopyError::Source(error.into()))?;
                    pieces.piece = frame.into_data().unwrap_or_default();
                }
            }
        }
        Ok(true)
    }
}
