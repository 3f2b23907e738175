//! What policies allow and deny: tables, AWS's documented examples, properties.

use std::net::{IpAddr, Ipv4Addr};

use http::{HeaderName, HeaderValue, Method};
use proptest::prelude::*;

use super::*;
use crate::{
    classify::{Head, classify},
    code::Code,
};

/// A request and who sends it; by default anonymous, over plain HTTP, from 198.51.100.7.
#[derive(Clone)]
struct Sent {
    line: String,
    user: Option<&'static str>,
    headers: HeaderMap,
    ip: IpAddr,
    transport: Transport,
    now: i64,
    signature: Option<Signature>,
}

fn sent(line: impl Into<String>) -> Sent {
    Sent {
        line: line.into(),
        user: None,
        headers: HeaderMap::new(),
        ip: Ipv4Addr::new(198, 51, 100, 7).into(),
        transport: Transport::Plain,
        now: 1_369_353_600,
        signature: None,
    }
}

impl Sent {
    fn by(mut self, user: &'static str) -> Self {
        self.user = Some(user);
        self.signature = Some(Signature {
            carrier: Carrier::Header,
            version: SignatureVersion::V4,
            age_millis: 2000,
        });
        self
    }

    fn with(mut self, name: &'static str, value: &str) -> Self {
        self.headers
            .append(HeaderName::from_static(name), value.parse().unwrap());
        self
    }

    fn at_ip(mut self, ip: &str) -> Self {
        self.ip = ip.parse().unwrap();
        self
    }

    /// The needs of the request, and what `policy` decides on each.
    fn decisions(&self, policy: &Policy) -> Vec<(Need, Decision)> {
        let (method, target) = self.line.split_once(' ').unwrap();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let method: Method = method.parse().unwrap();
        let head = Head {
            method: &method,
            host: "",
            path,
            query,
            headers: &self.headers,
        };
        let operation = classify(&head, &[]).unwrap();
        let Access::Needs(needs) = needs(&operation, &head) else {
            panic!("{operation:?}")
        };
        let context = Context {
            user: self.user,
            user_id: self.user.map(|_| "AIDA1"),
            source_ip: self.ip,
            transport: self.transport,
            now: self.now,
            signature: self.signature,
            headers: &self.headers,
            query,
        };
        needs
            .into_iter()
            .map(|need| {
                let decision = policy.decide(&AccessRequest {
                    need: &need,
                    context: &context,
                });
                (need, decision)
            })
            .collect()
    }

    /// The worst decision over all needs.
    fn judged(&self, policy: &Policy) -> Decision {
        let decisions = self.decisions(policy);
        let has = |wanted| decisions.iter().any(|(_, decision)| *decision == wanted);
        if has(Decision::Deny) {
            Decision::Deny
        } else if has(Decision::NoMatch) {
            Decision::NoMatch
        } else {
            Decision::Allow
        }
    }
}

fn bucket_policy(statements: &str) -> Policy {
    let json = format!("{{\"Version\": \"2012-10-17\", \"Statement\": [{statements}]}}");
    Policy::parse(&json, PolicyKind::Bucket).unwrap()
}

fn user_policy(statements: &str) -> Policy {
    let json = format!("{{\"Version\": \"2012-10-17\", \"Statement\": [{statements}]}}");
    Policy::parse(&json, PolicyKind::Identity).unwrap()
}

/// One statement for everyone about everything, with this effect and condition.
fn conditional(effect: &str, condition: &str) -> Policy {
    bucket_policy(&format!(
        "{{\"Effect\": \"{effect}\", \"Principal\": \"*\", \"Action\": \"s3:*\", \
          \"Resource\": \"*\", \"Condition\": {condition}}}"
    ))
}

#[test]
fn granting_read_to_anonymous_users_is_only_that() {
    // Amazon S3 User Guide, "Granting read-only permission to a public anonymous user".
    let policy = bucket_policy(
        r#"{"Sid": "PublicRead", "Effect": "Allow", "Principal": "*",
            "Action": ["s3:GetObject", "s3:GetObjectVersion"],
            "Resource": ["arn:aws:s3:::amzn-s3-demo-bucket/*"]}"#,
    );
    for (line, decision) in [
        ("GET /amzn-s3-demo-bucket/a/b", Decision::Allow),
        ("HEAD /amzn-s3-demo-bucket/a", Decision::Allow),
        ("GET /amzn-s3-demo-bucket/a?versionId=1", Decision::Allow),
        ("GET /amzn-s3-demo-bucket", Decision::NoMatch),
        ("GET /amzn-s3-demo-bucket2/a", Decision::NoMatch),
        ("PUT /amzn-s3-demo-bucket/a", Decision::NoMatch),
        ("GET /amzn-s3-demo-bucket/a?tagging", Decision::NoMatch),
        ("GET /amzn-s3-demo-bucket/a?future", Decision::NoMatch),
    ] {
        assert_eq!(sent(line).judged(&policy), decision, "{line}");
    }
}

#[test]
fn requiring_full_control_for_the_owner_is_about_one_header() {
    // Same guide, "Granting permission to multiple accounts with added conditions"
    // (`s3:x-amz-acl`), with users in place of accounts.
    let policy = bucket_policy(
        r#"{"Effect": "Allow", "Action": ["s3:PutObject", "s3:PutObjectAcl"],
            "Principal": {"AWS": ["arn:aws:iam::111122223333:user/Akua", "dave"]},
            "Resource": "arn:aws:s3:::bucket/*",
            "Condition": {"StringEquals": {"s3:x-amz-acl": ["public-read"]}}}"#,
    );
    let put = sent("PUT /bucket/k");
    assert_eq!(put.clone().by("Akua").judged(&policy), Decision::NoMatch);
    let public = put.with("x-amz-acl", "public-read");
    assert_eq!(public.clone().by("Akua").judged(&policy), Decision::Allow);
    assert_eq!(public.clone().by("dave").judged(&policy), Decision::Allow);
    assert_eq!(public.clone().by("eve").judged(&policy), Decision::NoMatch);
    assert_eq!(public.clone().judged(&policy), Decision::NoMatch);
    // Two values are one text that equals neither.
    let twice = public.with("x-amz-acl", "private");
    assert_eq!(twice.by("Akua").judged(&policy), Decision::NoMatch);
}

#[test]
fn addresses_limit_access_and_exceptions_deny() {
    // Same guide, "Limiting access to specific IP addresses".
    let policy = bucket_policy(
        r#"{"Sid": "IPAllow", "Effect": "Deny", "Principal": "*", "Action": "s3:*",
            "Resource": ["arn:aws:s3:::bucket", "arn:aws:s3:::bucket/*"],
            "Condition": {"NotIpAddress": {"aws:SourceIp": ["192.0.2.0/24", "2001:db8::/32"]}}},
           {"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": "*"}"#,
    );
    for (ip, decision) in [
        ("192.0.2.1", Decision::Allow),
        ("192.0.3.1", Decision::Deny),
        ("::ffff:192.0.2.1", Decision::Allow),
        ("2001:db8:1::1", Decision::Allow),
        ("2001:db9::1", Decision::Deny),
    ] {
        assert_eq!(
            sent("GET /bucket/k").at_ip(ip).judged(&policy),
            decision,
            "{ip}"
        );
    }
    let everywhere = conditional("Allow", r#"{"IpAddress": {"aws:SourceIp": "0.0.0.0/0"}}"#);
    assert_eq!(sent("GET /bucket/k").judged(&everywhere), Decision::Allow);
    assert_eq!(
        sent("GET /bucket/k").at_ip("::1").judged(&everywhere),
        Decision::NoMatch
    );
}

#[test]
fn a_home_folder_is_the_users_own() {
    // IAM User Guide, "Allows IAM users access to their S3 home directory".
    let policy = user_policy(
        r#"{"Effect": "Allow", "Action": ["s3:ListAllMyBuckets", "s3:GetBucketLocation"],
            "Resource": "*"},
           {"Effect": "Allow", "Action": "s3:ListBucket", "Resource": "arn:aws:s3:::bucket",
            "Condition": {"StringLike": {"s3:prefix": ["", "home/", "home/${aws:username}/*"]}}},
           {"Effect": "Allow", "Action": "s3:*", "Resource": [
             "arn:aws:s3:::bucket/home/${aws:username}",
             "arn:aws:s3:::bucket/home/${aws:username}/*"]}"#,
    );
    for (line, decision) in [
        ("GET /", Decision::Allow),
        ("GET /bucket?location", Decision::Allow),
        (
            "GET /bucket?list-type=2&prefix=home%2Fbob%2Fx",
            Decision::Allow,
        ),
        ("GET /bucket?list-type=2&prefix=", Decision::Allow),
        ("GET /bucket?list-type=2", Decision::NoMatch),
        ("GET /bucket?list-type=2&prefix=home/al", Decision::NoMatch),
        ("PUT /bucket/home/bob/a", Decision::Allow),
        ("PUT /bucket/home/alice/a", Decision::NoMatch),
        ("PUT /bucket/home/bob2/a", Decision::NoMatch),
        ("PUT /bucket/home/a?prefix=home/bob/", Decision::NoMatch),
    ] {
        assert_eq!(sent(line).by("bob").judged(&policy), decision, "{line}");
    }
    // Nobody's folder is not everybody's.
    assert_eq!(
        sent("GET /bucket/home//a").judged(&policy),
        Decision::NoMatch
    );
    let not_own = r#"{"Effect": "Allow", "Action": "s3:*", "Resource": "*",
        "Condition": {"StringNotEquals": {"s3:prefix": "${aws:username}"}}}"#;
    let list = sent("GET /bucket?prefix=a");
    assert_eq!(list.judged(&user_policy(not_own)), Decision::NoMatch);
    assert_eq!(
        list.by("bob").judged(&user_policy(not_own)),
        Decision::Allow
    );
    // A user's name is no pattern.
    assert_eq!(
        sent("GET /bucket/home/alice/a").by("*").judged(&policy),
        Decision::NoMatch
    );
}

#[test]
fn an_explicit_deny_wins_whatever_the_order() {
    let allow = r#"{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}"#;
    let deny =
        r#"{"Effect": "Deny", "Action": "s3:Delete*", "Resource": "arn:aws:s3:::b*/keep/?"}"#;
    for policy in [format!("{allow},{deny}"), format!("{deny},{allow}")] {
        let policy = user_policy(&policy);
        assert_eq!(
            sent("DELETE /bucket/keep/a").judged(&policy),
            Decision::Deny
        );
        assert_eq!(
            sent("DELETE /bucket/keep/%C3%A9").judged(&policy),
            Decision::Deny
        );
        assert_eq!(
            sent("DELETE /bucket/keep/ab").judged(&policy),
            Decision::Allow
        );
        // Not even by a sub-resource that an origin might not know.
        assert_eq!(
            sent("DELETE /bucket/keep/a?future").judged(&policy),
            Decision::Deny
        );
    }
    let need = Need {
        action: Action::DeleteObject,
        bucket: None,
        key: None,
        version: None,
    };
    let headers = HeaderMap::new();
    let context = Context {
        user: None,
        user_id: None,
        source_ip: Ipv4Addr::LOCALHOST.into(),
        transport: Transport::Plain,
        now: 0,
        signature: None,
        headers: &headers,
        query: "",
    };
    let request = AccessRequest {
        need: &need,
        context: &context,
    };
    let allow = user_policy(allow);
    let deny = user_policy(r#"{"Effect": "Deny", "NotAction": "s3:Get*", "Resource": "*"}"#);
    assert_eq!(decide_all([&allow, &deny], &request), Decision::Deny);
    assert_eq!(decide_all([&deny, &allow], &request), Decision::Deny);
    assert_eq!(decide_all([&allow], &request), Decision::Allow);
    assert_eq!(decide_all([], &request), Decision::NoMatch);
}

#[test]
fn not_elements_are_about_everything_else() {
    let policy = bucket_policy(
        r#"{"Effect": "Deny", "NotPrincipal": {"AWS": "alice"}, "NotAction": "s3:GetObject",
            "NotResource": "arn:aws:s3:::bucket/free/*"}"#,
    );
    for (line, user, decision) in [
        ("PUT /bucket/k", Some("bob"), Decision::Deny),
        ("PUT /bucket/k", None, Decision::Deny),
        ("PUT /bucket/k", Some("alice"), Decision::NoMatch),
        ("GET /bucket/k", Some("bob"), Decision::NoMatch),
        ("PUT /bucket/free/k", Some("bob"), Decision::NoMatch),
    ] {
        let request = Sent { user, ..sent(line) };
        assert_eq!(request.judged(&policy), decision, "{line} by {user:?}");
    }
    let all_but_own = user_policy(
        r#"{"Effect": "Allow", "Action": "s3:*", "NotResource": "arn:aws:s3:::b/${aws:username}"}"#,
    );
    assert_eq!(
        sent("GET /bucket/k").by("bob").judged(&all_but_own),
        Decision::Allow
    );
    assert_eq!(
        sent("GET /bucket/k").judged(&all_but_own),
        Decision::NoMatch
    );
}

/// Rows: condition, request, whether it holds.
#[test]
fn operators_hold_as_iam_says() {
    let list = || sent("GET /bucket?list-type=2&prefix=Home/a&max-keys=10").by("bob");
    let none = || sent("GET /bucket").by("bob");
    let put = || sent("PUT /bucket/k").by("bob");
    let date = |op: &str, d: &str| format!(r#"{{"{op}": {{"aws:CurrentTime": "{d}"}}}}"#);
    let rows: Vec<(String, Sent, bool)> = vec![
        (
            r#"{"StringEquals": {"s3:prefix": ["x", "Home/a"]}}"#.into(),
            list(),
            true,
        ),
        (
            r#"{"StringEquals": {"s3:prefix": "home/a"}}"#.into(),
            list(),
            false,
        ),
        (
            r#"{"StringEquals": {"s3:prefix": "Home/*"}}"#.into(),
            list(),
            false,
        ),
        (
            r#"{"StringEquals": {"S3:PREFIX": "Home/a"}}"#.into(),
            list(),
            true,
        ),
        (
            r#"{"StringEqualsIgnoreCase": {"s3:prefix": "hOME/A"}}"#.into(),
            list(),
            true,
        ),
        (
            r#"{"StringNotEqualsIgnoreCase": {"s3:prefix": "hOME/A"}}"#.into(),
            list(),
            false,
        ),
        (
            r#"{"StringLike": {"s3:prefix": "H?me/*"}}"#.into(),
            list(),
            true,
        ),
        (
            r#"{"StringNotLike": {"s3:prefix": ["x*", "H*"]}}"#.into(),
            list(),
            false,
        ),
        (
            r#"{"StringNotLike": {"s3:prefix": ["x*", "y*"]}}"#.into(),
            list(),
            true,
        ),
        // No value: positive operators fail, negated and IfExists hold.
        (
            r#"{"StringEquals": {"s3:prefix": "Home/a"}}"#.into(),
            none(),
            false,
        ),
        (
            r#"{"StringNotEquals": {"s3:prefix": "Home/a"}}"#.into(),
            none(),
            true,
        ),
        (
            r#"{"StringEqualsIfExists": {"s3:prefix": "Home/a"}}"#.into(),
            none(),
            true,
        ),
        (
            r#"{"StringEqualsIfExists": {"s3:prefix": "Other"}}"#.into(),
            list(),
            false,
        ),
        (
            r#"{"ForAllValues:StringEquals": {"s3:prefix": "x"}}"#.into(),
            none(),
            true,
        ),
        (
            r#"{"ForAllValues:StringEquals": {"s3:prefix": "x"}}"#.into(),
            list(),
            false,
        ),
        (
            r#"{"ForAnyValue:StringEquals": {"s3:prefix": "x"}}"#.into(),
            none(),
            false,
        ),
        (
            r#"{"ForAnyValue:StringNotEquals": {"s3:prefix": "x"}}"#.into(),
            none(),
            false,
        ),
        (
            r#"{"ForAnyValue:StringLikeIfExists": {"s3:prefix": "x"}}"#.into(),
            none(),
            true,
        ),
        (r#"{"Null": {"s3:prefix": "true"}}"#.into(), none(), true),
        (r#"{"Null": {"s3:prefix": true}}"#.into(), list(), false),
        (r#"{"Null": {"s3:prefix": "false"}}"#.into(), list(), true),
        (
            r#"{"NumericLessThanEquals": {"s3:max-keys": "10"}}"#.into(),
            list(),
            true,
        ),
        (
            r#"{"NumericLessThan": {"s3:max-keys": 10}}"#.into(),
            list(),
            false,
        ),
        (
            r#"{"NumericGreaterThan": {"s3:max-keys": [5, 20]}}"#.into(),
            list(),
            true,
        ),
        (
            r#"{"NumericNotEquals": {"s3:max-keys": [5, 10]}}"#.into(),
            list(),
            false,
        ),
        (
            date("DateGreaterThan", "2013-05-23T23:59:59Z"),
            none(),
            true,
        ),
        (date("DateLessThan", "2013-05-24T00:00:00Z"), none(), false),
        (date("DateEquals", "2013-05-24"), none(), true),
        (date("DateEquals", "1369353600"), none(), true),
        (date("DateNotEquals", "2013-05-24"), none(), false),
        (
            date("DateGreaterThanEquals", "2013-05-24T02:00:00+02:00"),
            none(),
            true,
        ),
        (
            r#"{"NumericGreaterThan": {"aws:EpochTime": 1369353599}}"#.into(),
            none(),
            true,
        ),
        (
            r#"{"Bool": {"aws:SecureTransport": "true"}}"#.into(),
            none(),
            false,
        ),
        (
            r#"{"Bool": {"aws:SecureTransport": false}}"#.into(),
            none(),
            true,
        ),
        (
            r#"{"StringEquals": {"aws:username": "bob"}}"#.into(),
            none(),
            true,
        ),
        (
            r#"{"StringEquals": {"aws:userid": "AIDA1"}}"#.into(),
            none(),
            true,
        ),
        (
            r#"{"ArnLike": {"aws:PrincipalArn": "arn:aws:iam::1234:user/b*"}}"#.into(),
            none(),
            true,
        ),
        (
            r#"{"ArnEquals": {"aws:PrincipalArn": "arn:aws:iam::*:role/*"}}"#.into(),
            none(),
            false,
        ),
        (
            r#"{"ArnNotLike": {"aws:PrincipalArn": "arn:aws:iam::*:user/bob"}}"#.into(),
            none(),
            false,
        ),
        (
            r#"{"StringEquals": {"s3:authType": "REST-HEADER"}}"#.into(),
            none(),
            true,
        ),
        (
            r#"{"StringEquals": {"s3:authType": "REST-HEADER"}}"#.into(),
            sent("GET /bucket"),
            false,
        ),
        (
            r#"{"StringEquals": {"s3:signatureversion": "AWS4-HMAC-SHA256"}}"#.into(),
            none(),
            true,
        ),
        (
            r#"{"NumericGreaterThan": {"s3:signatureAge": "1999"}}"#.into(),
            none(),
            true,
        ),
        (
            r#"{"NumericGreaterThan": {"s3:signatureAge": 2000}}"#.into(),
            none(),
            false,
        ),
        (
            r#"{"StringLike": {"aws:Referer": "http://*.example.com/*"}}"#.into(),
            put().with("referer", "http://www.example.com/x"),
            true,
        ),
        (
            r#"{"StringEquals": {"aws:UserAgent": "curl"}}"#.into(),
            put().with("user-agent", "curl/8"),
            false,
        ),
        (
            r#"{"StringEquals": {"s3:VersionId": "v=1"}}"#.into(),
            sent("GET /bucket/k?versionId=v%3D1"),
            true,
        ),
        (
            r#"{"StringEquals": {"s3:prefix": "${aws:username}"}}"#.into(),
            list(),
            false,
        ),
        (
            r#"{"StringEquals": {"s3:prefix": "${s3:delimiter, 'Home/'}a"}}"#.into(),
            list(),
            true,
        ),
        (
            r#"{"StringLike": {"s3:prefix": "H${*}*"}}"#.into(),
            list(),
            false,
        ),
        // All keys and all operators of one condition must hold.
        (
            r#"{"StringEquals": {"s3:prefix": "Home/a", "aws:username": "al"}}"#.into(),
            list(),
            false,
        ),
        (
            r#"{"StringLike": {"s3:prefix": "H*"}, "NumericEquals": {"s3:max-keys": 1}}"#.into(),
            list(),
            false,
        ),
    ];
    for (condition, request, holds) in rows {
        let wanted = if holds {
            Decision::Allow
        } else {
            Decision::NoMatch
        };
        let line = &request.line;
        assert_eq!(
            request.judged(&conditional("Allow", &condition)),
            wanted,
            "{condition} {line}"
        );
        let wanted = if holds {
            Decision::Deny
        } else {
            Decision::NoMatch
        };
        assert_eq!(
            request.judged(&conditional("Deny", &condition)),
            wanted,
            "{condition} {line}"
        );
    }
}

#[test]
fn a_value_that_cannot_be_read_allows_nothing_and_escapes_no_deny() {
    let condition = r#"{"NumericGreaterThan": {"s3:max-keys": 100}}"#;
    for max_keys in ["many", "%2B1000", "1e9", ""] {
        let request = sent(format!("GET /bucket?max-keys={max_keys}"));
        assert_eq!(
            request.judged(&conditional("Allow", condition)),
            Decision::NoMatch
        );
        assert_eq!(
            request.judged(&conditional("Deny", condition)),
            Decision::Deny
        );
    }
    let huge = sent("GET /bucket?max-keys=99999999999999999999");
    assert_eq!(huge.judged(&conditional("Deny", condition)), Decision::Deny);
}

#[test]
fn a_header_or_parameter_counts_only_where_s3_heeds_it() {
    let acl = conditional(
        "Allow",
        r#"{"StringEquals": {"s3:x-amz-acl": "public-read"}}"#,
    );
    let prefix = conditional("Allow", r#"{"StringEquals": {"s3:prefix": "a"}}"#);
    let version = conditional("Allow", r#"{"StringEquals": {"s3:VersionId": "v"}}"#);
    let delete = sent("DELETE /bucket/k?prefix=a").with("x-amz-acl", "public-read");
    for policy in [&acl, &prefix, &version] {
        assert_eq!(delete.judged(policy), Decision::NoMatch);
    }
}

#[test]
fn a_request_needs_all_that_it_does() {
    let all = bucket_policy(
        r#"{"Effect": "Allow", "Principal": "*", "Action": "s3:*", "Resource": "*"}"#,
    );
    let tagged_copy = sent("PUT /bucket/to")
        .with("x-amz-copy-source", "/source/from?versionId=v")
        .with("x-amz-tagging", "a=b")
        .with("x-amz-grant-read", "id=1")
        .with("x-amz-object-lock-mode", "GOVERNANCE");
    let locked = sent("PUT /bucket").with("x-amz-bucket-object-lock-enabled", "true");
    let rename = sent("PUT /bucket/to?renameObject").with("x-amz-rename-source", "bucket/from");
    let hidden = sent("PUT /bucket/to?future").with("x-amz-copy-source", "source/from");
    for (request, expected) in [
        (sent("GET /bucket/k"), "s3:GetObject k"),
        (
            sent("GET /bucket/k?acl&versionId=v"),
            "s3:GetObjectVersionAcl k",
        ),
        (
            sent("GET /bucket/k?attributes"),
            "s3:GetObject k, s3:GetObjectAttributes k",
        ),
        (
            sent("PUT /bucket/k?uploadId=u&partNumber=1"),
            "s3:PutObject k",
        ),
        (
            tagged_copy,
            "s3:GetObjectVersion from, s3:PutObjectTagging to, s3:PutObjectAcl to, \
             s3:PutObjectRetention to, s3:PutObject to",
        ),
        (
            locked,
            "s3:PutBucketObjectLockConfiguration -, s3:PutBucketVersioning -, s3:CreateBucket -",
        ),
        (
            sent("DELETE /bucket/k?versionId=v").with("x-amz-bypass-governance-retention", "true"),
            "s3:BypassGovernanceRetention k, s3:DeleteObjectVersion k",
        ),
        (
            rename,
            "s3:GetObject from, s3:DeleteObject from, s3:PutObject to",
        ),
        (
            hidden,
            "s3:GetObject from, s3:PutObject to, s3:UnknownWrite to",
        ),
        (
            sent("GET /bucket?future"),
            "s3:ListBucket -, s3:UnknownRead -",
        ),
    ] {
        let line = request.line.clone();
        let needs: Vec<_> = request
            .decisions(&all)
            .into_iter()
            .map(|(need, _)| {
                format!(
                    "{} {}",
                    need.action,
                    need.key.as_ref().map_or("-", ObjectKey::as_str)
                )
            })
            .collect();
        assert_eq!(needs.join(", "), expected, "{line}");
    }
}

#[test]
fn the_source_of_a_copy_is_compared_however_it_is_written() {
    let policy = bucket_policy(
        r#"{"Effect": "Deny", "Principal": "*", "Action": "s3:PutObject", "Resource": "*",
            "Condition": {"StringNotLike": {"s3:x-amz-copy-source": "/source/public/*"}}}"#,
    );
    for (source, denied) in [
        ("source/public/a", false),
        ("/source/public/a", false),
        ("source%2Fpublic%2Fa", false),
        ("source/private/a", true),
        ("/source/%70rivate/a", true),
    ] {
        let decision = sent("PUT /bucket/k")
            .with("x-amz-copy-source", source)
            .judged(&policy);
        assert_eq!(decision == Decision::Deny, denied, "{source}");
    }
}

/// Rows: statement, place of the fault, part of its reason.
#[test]
fn what_cannot_be_judged_is_refused_with_its_place() {
    let with = |condition: &str| {
        format!(
            "{{\"Effect\": \"Deny\", \"Action\": \"s3:*\", \"Resource\": \"*\", \
              \"Condition\": {condition}}}"
        )
    };
    let of = |resource: &str| {
        format!("{{\"Effect\": \"Allow\", \"Action\": \"*\", \"Resource\": {resource}}}")
    };
    let condition = "Statement[0].Condition.";
    let rows: Vec<(String, String, &str)> = vec![
        (
            with(r#"{"StringEqual": {"s3:prefix": "a"}}"#),
            format!("{condition}StringEqual.s3:prefix"),
            "not supported",
        ),
        (
            with(r#"{"ForSome:Bool": {"aws:SecureTransport": "true"}}"#),
            format!("{condition}ForSome:Bool.aws:SecureTransport"),
            "not supported",
        ),
        (
            with(r#"{"StringEquals": {"s3:prefixes": "a"}}"#),
            format!("{condition}StringEquals.s3:prefixes"),
            "supported are",
        ),
        (
            with(r#"{"StringEquals": {"s3:ExistingObjectTag/a": "b"}}"#),
            format!("{condition}StringEquals.s3:ExistingObjectTag/a"),
            "tags",
        ),
        (
            with(r#"{"StringEquals": {"aws:SourceIp": "::1"}}"#),
            format!("{condition}StringEquals.aws:SourceIp"),
            "takes IpAddress",
        ),
        (
            with(r#"{"IpAddress": {"aws:SourceIp": "1.2.3.4/33"}}"#),
            format!("{condition}IpAddress.aws:SourceIp"),
            "no address",
        ),
        (
            with(r#"{"NumericEquals": {"s3:max-keys": "ten"}}"#),
            format!("{condition}NumericEquals.s3:max-keys"),
            "whole number",
        ),
        (
            with(r#"{"DateEquals": {"aws:CurrentTime": "soon"}}"#),
            format!("{condition}DateEquals.aws:CurrentTime"),
            "no date",
        ),
        (
            with(r#"{"Bool": {"aws:SecureTransport": "yes"}}"#),
            format!("{condition}Bool.aws:SecureTransport"),
            "neither",
        ),
        (
            with(r#"{"NullIfExists": {"s3:prefix": "true"}}"#),
            format!("{condition}NullIfExists.s3:prefix"),
            "Null takes",
        ),
        (
            with(r#"{"ArnLike": {"aws:PrincipalArn": "bob"}}"#),
            format!("{condition}ArnLike.aws:PrincipalArn"),
            "six parts",
        ),
        (
            with(r#"{"StringEquals": {"s3:prefix": []}}"#),
            format!("{condition}StringEquals.s3:prefix"),
            "no value",
        ),
        (
            with(r#"{"StringEquals": {"s3:prefix": {}}}"#),
            format!("{condition}StringEquals.s3:prefix"),
            "not a string",
        ),
        (
            with(r#"{"StringEquals": "a"}"#),
            format!("{condition}StringEquals"),
            "not an object",
        ),
        (
            with(r#"{"StringLike": {"s3:prefix": "${aws:user}"}}"#),
            format!("{condition}StringLike.s3:prefix"),
            "not supported",
        ),
        (
            with(r#"{"StringLike": {"s3:prefix": "${aws:username"}}"#),
            format!("{condition}StringLike.s3:prefix"),
            "closing",
        ),
        (
            with(r#"{"StringLike": {"s3:prefix": "${aws:SourceIp}"}}"#),
            format!("{condition}StringLike.s3:prefix"),
            "no text",
        ),
        (
            of(r#""bucket/*""#),
            "Statement[0].Resource".into(),
            "names no bucket",
        ),
        (
            of(r#"["*", "arn:aws:sqs:::q"]"#),
            "Statement[0].Resource[1]".into(),
            "names no bucket",
        ),
        (
            of(r#""arn:aws:s3:us-east-1:1:accesspoint/a""#),
            "Statement[0].Resource".into(),
            "names no bucket",
        ),
        (of("[]"), "Statement[0].Resource".into(), "neither"),
        (of("[1]"), "Statement[0].Resource[0]".into(), "not a string"),
        (
            r#"{"Effect": "allow", "Action": "*", "Resource": "*"}"#.into(),
            "Statement[0].Effect".into(),
            "Allow",
        ),
        (
            r#"{"Effect": "Allow", "Action": "GetObject", "Resource": "*"}"#.into(),
            "Statement[0].Action".into(),
            "no action",
        ),
        (
            r#"{"Effect": "Allow", "Resource": "*"}"#.into(),
            "Statement[0]".into(),
            "Action is missing",
        ),
        (
            r#"{"Effect": "Allow", "Action": "*"}"#.into(),
            "Statement[0]".into(),
            "Resource is missing",
        ),
        (
            r#"{"Effect": "Allow", "Action": "*", "NotAction": "*", "Resource": "*"}"#.into(),
            "Statement[0]".into(),
            "exclude",
        ),
        (
            r#"{"Effect": "Allow", "Action": "*", "Resource": "*", "Principal": "*"}"#.into(),
            "Statement[0]".into(),
            "no principal",
        ),
        (
            r#"{"Effect": "Allow", "Action": "*", "Resource": "*", "Conditions": {}}"#.into(),
            "Statement[0].Conditions".into(),
            "no element",
        ),
        (
            r#"{"Sid": 1, "Effect": "Allow", "Action": "*", "Resource": "*"}"#.into(),
            "Statement[0].Sid".into(),
            "not a string",
        ),
        ("1".into(), "Statement[0]".into(), "not an object"),
        (String::new(), "Statement".into(), "at least one"),
    ];
    for (statement, place, reason) in rows {
        let json = format!("{{\"Version\": \"2012-10-17\", \"Statement\": [{statement}]}}");
        let error = Policy::parse(&json, PolicyKind::Identity).unwrap_err();
        assert_eq!(error.faults.len(), 1, "{error}");
        assert_eq!(error.faults[0].place, place, "{error}");
        assert!(error.faults[0].reason.contains(reason), "{error}");
    }
}

#[test]
fn principals_are_users_by_name_or_everyone() {
    for (element, user, included) in [
        (r#""Principal": "*""#, None, true),
        (r#""Principal": {"AWS": "*"}"#, None, true),
        (r#""Principal": {"AWS": ["bob", "*"]}"#, Some("eve"), true),
        (
            r#""Principal": {"AWS": "arn:aws:iam::*:user/div/bob"}"#,
            Some("bob"),
            true,
        ),
        (r#""Principal": {"AWS": "bob"}"#, Some("Bob"), false),
        (r#""Principal": {"AWS": "bob"}"#, None, false),
    ] {
        let policy = bucket_policy(&format!(
            "{{\"Effect\": \"Allow\", {element}, \"Action\": \"*\", \"Resource\": \"*\"}}"
        ));
        let request = Sent {
            user,
            ..sent("GET /bucket/k")
        };
        assert_eq!(
            request.judged(&policy) == Decision::Allow,
            included,
            "{element} {user:?}"
        );
    }
    for element in [
        r#""Sid": "no principal""#,
        r#""Principal": "bob""#,
        r#""Principal": {}"#,
        r#""Principal": {"AWS": []}"#,
        r#""Principal": {"AWS": "123456789012"}"#,
        r#""Principal": {"AWS": "arn:aws:iam::123456789012:root"}"#,
        r#""Principal": {"AWS": "arn:aws:iam::1:role/r"}"#,
        r#""Principal": {"AWS": "bo*"}"#,
        r#""Principal": {"AWS": "bob", "Service": "x"}"#,
        r#""Principal": {"CanonicalUser": "x"}"#,
        r#""NotPrincipal": {"AWS": "bob"}"#,
        r#""NotPrincipal": "*""#,
        r#""Principal": "*", "NotPrincipal": {"AWS": "bob"}"#,
    ] {
        let statement =
            format!("{{\"Effect\": \"Allow\", {element}, \"Action\": \"*\", \"Resource\": \"*\"}}");
        let json = format!("{{\"Statement\": {statement}}}");
        assert!(
            Policy::parse(&json, PolicyKind::Bucket).is_err(),
            "{element}"
        );
    }
}

#[test]
fn documents_are_whole_or_refused() {
    let statement = r#"{"Effect": "Allow", "Action": "*", "Resource": "*"}"#;
    let parse = |json: &str| Policy::parse(json, PolicyKind::Identity);
    assert!(parse(&format!("{{\"Id\": \"x\", \"Statement\": {statement}}}")).is_ok());
    let own = r#"{"Effect": "Allow", "Action": "*", "Resource": "arn:aws:s3:::${aws:username}"}"#;
    for (json, reason) in [
        (String::new(), "no valid JSON"),
        ("[]".to_owned(), "not an object"),
        ("{}".to_owned(), "at least one statement"),
        (
            format!("{{\"Version\": \"2020-01-01\", \"Statement\": {statement}}}"),
            "2012-10-17",
        ),
        (
            format!("{{\"Statment\": 1, \"Statement\": {statement}}}"),
            "Statment",
        ),
        (
            format!("{{\"Statement\": {statement}, \"Statement\": {statement}}}"),
            "twice",
        ),
        (format!("{{\"Statement\": {own}}}"), "need \"Version\""),
        (
            format!(
                "{{\"Statement\": {statement}}}{}",
                " ".repeat(POLICY_BYTES_MAX)
            ),
            "bytes",
        ),
        ("[".repeat(10_000), "no valid JSON"),
    ] {
        let error = parse(&json).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
    let two = r#"{"Statement": [{"Effect": "x", "Action": "*", "Resource": "y"}]}"#;
    assert_eq!(parse(two).unwrap_err().faults.len(), 2);
    let typo = r#"{"Statement": {"Effect": "Deny", "Action": ["s3:GetObjct", "s3:Get*"],
        "Resource": "*"}}"#;
    let warnings = parse(typo).unwrap().warnings().to_vec();
    assert_eq!(warnings.len(), 1);
    assert_eq!(warnings[0].place, "Statement[0].Action[0]");
    assert_eq!(Code::MalformedPolicy.status(), 400);
}

#[test]
fn the_body_names_what_a_delete_of_many_needs() {
    let headers = HeaderMap::from_iter([(
        HeaderName::from_static("x-amz-bypass-governance-retention"),
        HeaderValue::from_static("true"),
    )]);
    let bucket = BucketName::parse("bucket").unwrap();
    let body = b"<Delete><Object><Key>k</Key><VersionId>v</VersionId></Object></Delete>";
    let entry = &crate::xml::delete_keys(body).unwrap()[0];
    let actions: Vec<_> = delete_needs(&bucket, entry, &headers)
        .into_iter()
        .map(|need| need.action)
        .collect();
    assert_eq!(
        actions,
        [
            Action::BypassGovernanceRetention,
            Action::DeleteObjectVersion
        ]
    );
    for (line, free) in [("POST /bucket?delete", false), ("OPTIONS /bucket/k", true)] {
        let (method, target) = line.split_once(' ').unwrap();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let method: Method = method.parse().unwrap();
        let head = Head {
            method: &method,
            host: "",
            path,
            query,
            headers: &headers,
        };
        let access = needs(&classify(&head, &[]).unwrap(), &head);
        assert_eq!(matches!(access, Access::Free), free, "{line}");
        assert_eq!(matches!(access, Access::NamedInBody), !free, "{line}");
    }
}

proptest! {
    /// Goal: patterns over `bucket/key` match as the plain definition of wildcards says.
    /// Method: a recursive matcher that is too slow to use and too simple to be wrong.
    #[test]
    fn wildcards_match_as_defined(
        pattern in "[ab/*?é]{1,8}",
        bucket in "[ab]{3}",
        key in "[ab/é]{1,6}",
    ) {
        fn matches(pattern: &[char], text: &[char]) -> bool {
            match (pattern, text) {
                ([], []) => true,
                (['*', rest @ ..], _) => {
                    matches(rest, text) || (!text.is_empty() && matches(pattern, &text[1..]))
                }
                (['?', rest @ ..], [_, tail @ ..]) => matches(rest, tail),
                ([a, rest @ ..], [b, tail @ ..]) => a == b && matches(rest, tail),
                _ => false,
            }
        }
        let policy = user_policy(&format!(
            "{{\"Effect\": \"Allow\", \"Action\": \"*\", \"Resource\": \"arn:aws:s3:::{pattern}\"}}"
        ));
        let chars = |text: &str| text.chars().collect::<Vec<_>>();
        let expected = matches(&chars(&pattern), &chars(&format!("{bucket}/{key}")));
        let line = format!("GET /{bucket}/{}", crate::uri::encode_path(&key));
        prop_assert_eq!(sent(line).judged(&policy) == Decision::Allow, expected);
    }

    #[test]
    fn any_text_is_compiled_or_refused_without_a_panic(
        json in "(\\{|\\}|\\[|\\]|\"(Statement|Effect|Allow|Action|Resource|Condition|\\$\\{[a-z:,']{0,9}\\}?|Bool|\\*)\"|:|,|[0-9]|null| ){0,40}",
    ) {
        let _ = Policy::parse(&json, PolicyKind::Bucket);
    }
}
