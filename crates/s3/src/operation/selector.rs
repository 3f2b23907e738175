//! The query parameters that S3 knows, each with what it means for finding the operation.
//!
//! Each has a bit, so that a request's parameters are one set. Any of them may come once only:
//! of two values, the gateway could judge one and the origin obey the other.
//!
//! Source: Amazon S3 API Reference, "Actions": the request syntax of every operation.

use Kind::{Parameter as P, Qualifier as Q, SubResource as S};

/// What a parameter of the query means for finding the operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Names a sub-resource; a request has one at most.
    SubResource,
    /// Chooses among the operations of one sub-resource.
    Qualifier,
    /// Says how, not what.
    Parameter,
}

/// Every known parameter, sorted; the place of one is its bit.
const KNOWN: &[(&str, Kind)] = &[
    ("abac", S),
    ("accelerate", S),
    ("acl", S),
    ("analytics", S),
    ("annotation", S),
    ("annotation-prefix", P),
    ("annotationName", Q),
    ("attributes", S),
    ("bucket-region", P),
    ("continuation-token", P),
    ("cors", S),
    ("delete", S),
    ("delimiter", P),
    ("encoding-type", P),
    ("encryption", S),
    ("fetch-owner", P),
    ("id", Q),
    ("intelligent-tiering", S),
    ("inventory", S),
    ("key-marker", P),
    ("legal-hold", S),
    ("lifecycle", S),
    ("list-type", S),
    ("location", S),
    ("logging", S),
    ("marker", P),
    ("max-annotation-results", P),
    ("max-buckets", P),
    ("max-directory-buckets", S),
    ("max-keys", P),
    ("max-parts", P),
    ("max-uploads", P),
    ("metadataAnnotationTable", S),
    ("metadataConfiguration", S),
    ("metadataInventoryTable", S),
    ("metadataJournalTable", S),
    ("metadataTable", S),
    ("metrics", S),
    ("notification", S),
    ("object-lock", S),
    ("ownershipControls", S),
    ("part-number-marker", P),
    ("partNumber", Q),
    ("policy", S),
    ("policyStatus", S),
    ("prefix", P),
    ("publicAccessBlock", S),
    ("renameObject", S),
    ("replication", S),
    ("requestPayment", S),
    ("response-cache-control", P),
    ("response-content-disposition", P),
    ("response-content-encoding", P),
    ("response-content-language", P),
    ("response-content-type", P),
    ("response-expires", P),
    ("restore", S),
    ("retention", S),
    ("select", S),
    ("select-type", P),
    ("session", S),
    ("start-after", P),
    ("tagging", S),
    ("torrent", S),
    ("upload-id-marker", P),
    ("uploadId", S),
    ("uploads", S),
    ("version-id-marker", P),
    ("versionId", P),
    ("versioning", S),
    ("versions", S),
    ("website", S),
    ("x-id", P),
];

/// A set of known parameters.
pub(crate) type Set = u128;

const _: () = assert!(
    KNOWN.len() <= Set::BITS as usize,
    "each parameter has a bit"
);

/// A parameter's bit and kind; `None` for one that S3 does not know.
pub(crate) fn find(name: &str) -> Option<(Set, Kind)> {
    let at = KNOWN
        .binary_search_by(|(known, _)| (*known).cmp(name))
        .ok()?;
    Some((1 << at, KNOWN[at].1))
}

/// The set of `names`, while compiling; a name that is not known does not compile.
pub(crate) const fn set(names: &[&str]) -> Set {
    let mut set = 0;
    let mut i = 0;
    while i < names.len() {
        let mut at = 0;
        while !same(KNOWN[at].0.as_bytes(), names[i].as_bytes()) {
            at += 1;
        }
        set |= 1 << at;
        i += 1;
    }
    set
}

const fn same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut i = 0;
    while i < a.len() {
        if a[i] != b[i] {
            return false;
        }
        i += 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_parameters_are_sorted_and_each_is_found() {
        assert!(KNOWN.is_sorted_by(|a, b| a.0 < b.0));
        for (at, (name, kind)) in KNOWN.iter().enumerate() {
            assert_eq!(find(name), Some((1 << at, *kind)), "{name}");
        }
        assert_eq!(find("futureThing"), None);
        assert_eq!(set(&["abac", "acl"]), 0b101);
    }
}
