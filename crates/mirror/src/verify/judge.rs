//! Which of several versions of a key is right, where the journal says nothing of it: pure.

use crate::{
    copy::Described,
    members::{MemberId, MemberSet},
};

use super::Remedy;

/// Whether two members have the same under a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sameness {
    Same,
    Other,
    /// Sizes are equal and tags differ, as they do by the parts of an upload, and no checksum
    /// tells.
    Undecided,
}

/// Compares what two members have, by what HEADs tell.
pub(super) fn sameness(a: Option<&Described>, b: Option<&Described>) -> Sameness {
    let (a, b) = match (a, b) {
        (None, None) => return Sameness::Same,
        (Some(a), Some(b)) => (a, b),
        (Some(_), None) | (None, Some(_)) => return Sameness::Other,
    };
    if a.size_bytes != b.size_bytes || !a.is_described_like(b) {
        return Sameness::Other;
    }
    if a.has_bytes_of(b) {
        return Sameness::Same;
    }
    let sums = a.whole_checksum().zip(b.whole_checksum());
    let is_told = sums.is_some_and(|(a, b)| a.algorithm() == b.algorithm());
    let is_of_parts = a.part_count().is_some() || b.part_count().is_some();
    if is_told || !is_of_parts {
        Sameness::Other
    } else {
        Sameness::Undecided
    }
}

/// Members that have the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) members: MemberSet,
    /// What they have; that of the first of them.
    pub(super) object: Option<Described>,
}

/// What is right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ruling {
    /// What this member has; whether more than half have it.
    Has(MemberId, Ground),
    /// Nothing.
    Nothing,
}

/// Why something is right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ground {
    /// More than half of the members have it, or all that have anything.
    Agreed,
    /// It was modified last.
    Latest,
}

/// Rules which of these versions is right, by the members that have a vote; `None` when none of
/// them has been seen.
pub(super) fn rule(versions: &[Version], voters: MemberSet, remedy: Remedy) -> Option<Ruling> {
    let of = |version: &Version| version.members.and(voters);
    let having: Vec<_> = versions.iter().filter(|v| !of(v).is_empty()).collect();
    let total: usize = having.iter().map(|version| of(version).count()).sum();
    let is_majority = |version: &Version| of(version).count() * 2 > total;
    let objects: Vec<_> = having.iter().filter(|v| v.object.is_some()).collect();
    let lacking = having.iter().find(|version| version.object.is_none());
    let is_deleted = match remedy {
        Remedy::Tell | Remedy::Restore => false,
        Remedy::DeleteByMajority => lacking.is_some_and(|version| is_majority(version)),
    };
    if is_deleted || (objects.is_empty() && lacking.is_some()) {
        return Some(Ruling::Nothing);
    }
    let agreed = match objects.as_slice() {
        [only] => Some(only),
        all => all.iter().find(|version| is_majority(version)),
    };
    if let Some(version) = agreed {
        let member = of(version).iter().next()?;
        return Some(Ruling::Has(member, Ground::Agreed));
    }
    let modified = |version: &Version| {
        let object = version.object.as_ref();
        object
            .and_then(|object| object.modified_s)
            .unwrap_or(i64::MIN)
    };
    let latest = objects.iter().max_by_key(|version| modified(version))?;
    let member = of(latest).iter().next()?;
    Some(Ruling::Has(member, Ground::Latest))
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName, HeaderValue};

    use super::*;
    use crate::rig::members;

    fn object(etag: &str, more: &[(&'static str, &str)]) -> Described {
        let mut headers = HeaderMap::new();
        let mut set = |name: &'static str, value: &str| {
            let value = HeaderValue::try_from(value).unwrap();
            headers.insert(HeaderName::from_static(name), value);
        };
        set("etag", &format!("\"{etag}\""));
        set("content-length", "3");
        for (name, value) in more {
            set(name, value);
        }
        Described::read(&headers).unwrap()
    }

    fn at(etag: &str, second: u32) -> Described {
        let date = format!("Thu, 01 Jan 1970 00:00:{second:02} GMT");
        object(etag, &[("last-modified", &date)])
    }

    fn version(of: &[u8], object: Option<Described>) -> Version {
        Version {
            members: members(of),
            object,
        }
    }

    #[test]
    fn tags_tell_then_checksums_and_parts_leave_it_undecided() {
        const PARTS: &str = "900150983cd24fb0d6963f7d28e17f72-2";
        let crc = [
            ("x-amz-checksum-crc32", "NSRBwg=="),
            ("x-amz-checksum-type", "FULL_OBJECT"),
        ];
        let other = [
            ("x-amz-checksum-crc32", "AAAAAA=="),
            ("x-amz-checksum-type", "FULL_OBJECT"),
        ];
        for (a, b, expected) in [
            (object("a", &[]), object("a", &[]), Sameness::Same),
            (object("a", &[]), object("b", &[]), Sameness::Other),
            (object("a", &[]), object(PARTS, &[]), Sameness::Undecided),
            (object("a", &crc), object(PARTS, &crc), Sameness::Same),
            (object("a", &crc), object(PARTS, &other), Sameness::Other),
            (
                object("a", &[]),
                object("a", &[("content-length", "4")]),
                Sameness::Other,
            ),
            (
                object("a", &[]),
                object("a", &[("x-amz-meta-m", "")]),
                Sameness::Other,
            ),
        ] {
            assert_eq!(sameness(Some(&a), Some(&b)), expected, "{a:?} {b:?}");
        }
        assert_eq!(sameness(Some(&object("a", &[])), None), Sameness::Other);
        assert_eq!(sameness(None, None), Sameness::Same);
    }

    #[test]
    fn the_majority_is_right_or_the_latest_and_what_is_lacked_is_restored() {
        let three = members(&[0, 1, 2]);
        let has = |member, ground| Some(Ruling::Has(MemberId(member), ground));
        let (a, b, none) = (Some(at("a", 1)), Some(at("b", 2)), None);
        for (versions, restore, delete) in [
            (
                vec![version(&[0, 2], a.clone()), version(&[1], b.clone())],
                has(0, Ground::Agreed),
                has(0, Ground::Agreed),
            ),
            (
                vec![version(&[0], a.clone()), version(&[1, 2], none.clone())],
                has(0, Ground::Agreed),
                Some(Ruling::Nothing),
            ),
            (
                vec![version(&[1, 2], a.clone()), version(&[0], none.clone())],
                has(1, Ground::Agreed),
                has(1, Ground::Agreed),
            ),
            (
                vec![version(&[0], a), version(&[1], b), version(&[2], none)],
                has(1, Ground::Latest),
                has(1, Ground::Latest),
            ),
        ] {
            assert_eq!(
                rule(&versions, three, Remedy::Restore),
                restore,
                "{versions:?}"
            );
            let by_majority = rule(&versions, three, Remedy::DeleteByMajority);
            assert_eq!(by_majority, delete, "{versions:?}");
        }
    }

    #[test]
    fn a_member_without_a_vote_changes_nothing() {
        let versions = [version(&[0], None), version(&[1, 2], Some(at("a", 1)))];
        let ruling = rule(&versions, members(&[0]), Remedy::Restore);
        assert_eq!(ruling, Some(Ruling::Nothing));
        assert_eq!(rule(&versions[1..], members(&[0]), Remedy::Restore), None);
    }
}
