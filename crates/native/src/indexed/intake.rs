//! Takes a body in: beside its record when it is small, else into a blob as it comes.

use bytes::Bytes;
use forebay_store::{Body, Error};

use crate::{
    blobs::{BlobId, BlobWriter, Blobs},
    index::{Payload, Route},
    ingest::{Ingest, Ingested},
    pieces::{Piece, Pieces, Then},
};

/// Bytes that are hashed between two looks at the body.
const PIECE_BYTES_MAX: usize = 256 << 10;

/// A body that was taken in.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) ingested: Ingested,
    pub(super) place: TakenTo,
}

/// Where a body went.
#[derive(Debug, Clone)]
pub(super) enum TakenTo {
    /// Nowhere yet: it is to be written with its entry.
    Here(Bytes),
    /// To a blob, which is durable.
    Blob(BlobId),
}

impl TakenTo {
    /// What the entry keeps beside it.
    pub(super) fn payload(&self) -> Payload {
        match self {
            Self::Here(bytes) => Payload::Inline(bytes.clone()),
            Self::Blob(_) => Payload::None,
        }
    }

    pub(super) fn blob(&self) -> Option<&BlobId> {
        match self {
            Self::Here(_) => None,
            Self::Blob(blob) => Some(blob),
        }
    }
}

/// Whether a body of this length, if it is known, is a blob from its first byte.
pub(super) fn is_large(body: &Body, payload_bytes_max: usize) -> bool {
    body.length()
        .is_some_and(|length| usize::try_from(length).map_or(true, |n| n > payload_bytes_max))
}

/// Takes a whole body in, holding `payload_bytes_max` bytes of it and a piece at most.
pub(super) async fn take<B: Blobs>(
    blobs: &B,
    route: &Route,
    body: Body,
    mut ingest: Ingest,
    payload_bytes_max: usize,
) -> Result<Taken, Error> {
    let mut writer: Option<Box<dyn BlobWriter>> = None;
    if is_large(&body, payload_bytes_max) {
        writer = Some(blobs.create(route).await?);
    }
    let mut pieces = Pieces::new(body, PIECE_BYTES_MAX);
    let (mut held, mut held_bytes) = (Vec::new(), 0);
    loop {
        let Piece { mut chunks, then } = pieces.next().await?;
        for chunk in &chunks {
            ingest.update(chunk);
            held_bytes += chunk.len();
        }
        if held.is_empty() {
            held = chunks;
        } else {
            held.append(&mut chunks);
        }
        if writer.is_none() && held_bytes > payload_bytes_max {
            writer = Some(blobs.create(route).await?);
        }
        if let Some(writer) = &mut writer {
            for chunk in held.drain(..) {
                writer.write(chunk).await?;
            }
        }
        if let Then::End(trailers) = then {
            let ingested = ingest.finish(trailers.as_ref())?;
            let place = match writer {
                Some(writer) => TakenTo::Blob(writer.finish().await?),
                None => TakenTo::Here(joined(held)),
            };
            return Ok(Taken { ingested, place });
        }
    }
}

fn joined(mut chunks: Vec<Bytes>) -> Bytes {
    match chunks.len() {
        0 => Bytes::new(),
        1 => chunks.swap_remove(0),
        _ => chunks.concat().into(),
    }
}
