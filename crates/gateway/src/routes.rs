//! Which store answers for which bucket: patterns in the order of the configuration.

use std::{fmt, sync::Arc};

use forebay_s3::{bucket::BucketName, wildcard};
use forebay_store::Store;

/// A bucket name with wildcards: `*` for any number of characters, `?` for one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketPattern(Box<str>);

impl BucketPattern {
    /// Takes the pattern as it is; any text is one.
    pub fn new(pattern: impl Into<Box<str>>) -> Self {
        Self(pattern.into())
    }

    /// Whether the pattern stands for this bucket.
    pub fn matches(&self, bucket: &BucketName) -> bool {
        wildcard::matches(&self.0, bucket.as_str())
    }

    /// Whether it stands for every bucket.
    pub fn is_any(&self) -> bool {
        !self.0.is_empty() && self.0.bytes().all(|byte| byte == b'*')
    }

    /// The pattern as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Buckets and the store, layers around it included, that answers for them.
#[derive(Clone)]
pub struct Route {
    /// Any of these may match.
    pub buckets: Vec<BucketPattern>,
    /// Who answers.
    pub store: Arc<dyn Store>,
}

impl Route {
    fn is_for(&self, bucket: &BucketName) -> bool {
        self.buckets.iter().any(|pattern| pattern.matches(bucket))
    }
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Route")
            .field("buckets", &self.buckets)
            .finish_non_exhaustive()
    }
}

/// The routes in their order: the first that matches counts.
#[derive(Debug, Clone)]
pub struct Routes(Vec<Route>);

impl Routes {
    /// Keeps the routes in this order.
    pub fn new(routes: Vec<Route>) -> Self {
        Self(routes)
    }

    /// The store for a bucket, or, where a request names none, for the service itself: that of
    /// the first route for every bucket, else of the first route.
    pub fn store_for(&self, bucket: Option<&BucketName>) -> Option<&dyn Store> {
        let route = match bucket {
            Some(bucket) => self.0.iter().find(|route| route.is_for(bucket)),
            None => self
                .0
                .iter()
                .find(|route| route.buckets.iter().any(BucketPattern::is_any))
                .or_else(|| self.0.first()),
        };
        route.map(|route| &*route.store)
    }

    /// The index of the route for a bucket.
    pub fn index_for(&self, bucket: &BucketName) -> Option<usize> {
        self.0.iter().position(|route| route.is_for(bucket))
    }
}

#[cfg(test)]
mod tests {
    use forebay_store::null::NullStore;

    use super::*;

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, name, matches) in [
            ("*", "abc", true),
            ("abc", "abc", true),
            ("abc", "abcd", false),
            ("a*c", "abbc", true),
            ("a*c", "abcb", false),
            ("logs-*", "logs-", true),
            ("logs-*", "log-1", false),
            ("a?c", "abc", true),
            ("a?c", "ac-", false),
            ("*a*b*", "xxaxxbxx", true),
            ("", "abc", false),
        ] {
            let bucket = BucketName::parse(name).unwrap();
            assert_eq!(
                BucketPattern::new(pattern).matches(&bucket),
                matches,
                "{pattern} {name}"
            );
        }
    }

    #[test]
    fn the_first_route_that_matches_counts() {
        let route = |pattern: &str| Route {
            buckets: vec![BucketPattern::new(pattern)],
            store: Arc::new(NullStore::default()),
        };
        let routes = Routes::new(vec![route("logs-*"), route("*")]);
        let address = |index: usize| std::ptr::from_ref(&*routes.0[index].store).cast::<u8>();
        let found = |name: Option<&str>| {
            let bucket = name.map(|name| BucketName::parse(name).unwrap());
            std::ptr::from_ref(routes.store_for(bucket.as_ref()).unwrap()).cast::<u8>()
        };
        assert_eq!(found(Some("logs-1")), address(0));
        assert_eq!(found(Some("other")), address(1));
        assert_eq!(found(None), address(1));
        assert!(Routes::new(vec![]).store_for(None).is_none());
    }
}
