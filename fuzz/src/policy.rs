//! Policy documents: the JSON, a line `--`, a line with the user's name, then a request that asks.

use std::net::{IpAddr, Ipv4Addr};

use forebay_s3::classify::{Head, classify};
use forebay_s3::policy::{
    Access, AccessRequest, Carrier, Context, Decision, Need, Policy, PolicyKind, Signature,
    SignatureVersion, Transport, decide_all, needs,
};
use serde_json::Value;

use crate::input::{Input, Request};

/// A decision is what the statements say one by one, with any deny above all; the order of
/// statements does not matter.
pub fn check(data: &[u8]) {
    let mut input = Input(data);
    let Ok(json) = std::str::from_utf8(input.until(b"\n--\n")) else {
        return;
    };
    let user = input.text_line();
    let request = input.request();
    for kind in [PolicyKind::Identity, PolicyKind::Bucket] {
        match Policy::parse(json, kind) {
            Ok(policy) => {
                if let Some(request) = &request {
                    check_decisions(&policy, json, kind, user, request);
                }
            }
            Err(refused) => {
                assert!(!refused.faults.is_empty());
                assert!(!refused.to_string().is_empty());
            }
        }
    }
}

fn check_decisions(
    policy: &Policy,
    json: &str,
    kind: PolicyKind,
    user: &str,
    request: &Request<'_>,
) {
    let head = Head {
        method: &request.method,
        host: request.host,
        path: request.path,
        query: request.query.unwrap_or_default(),
        headers: &request.headers,
    };
    let Ok(operation) = classify(&head, &[]) else {
        return;
    };
    let Access::Needs(needs) = needs(&operation, &head) else {
        return;
    };
    let signature = Signature {
        carrier: Carrier::Header,
        version: SignatureVersion::V4,
        age_millis: 1500,
    };
    let user = Some(user).filter(|user| !user.is_empty());
    let context = Context {
        user,
        user_id: user,
        source_ip: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7)),
        transport: Transport::Tls,
        now: 1_369_353_600,
        signature: user.map(|_| signature),
        headers: &request.headers,
        query: head.query,
    };
    let singles = singles(json, kind);
    for need in needs {
        check_need(
            policy,
            &singles,
            &AccessRequest {
                need: &need,
                context: &context,
            },
        );
    }
}

fn check_need(policy: &Policy, singles: &[Policy], request: &AccessRequest<'_>) {
    let decision = policy.decide(request);
    let said: Vec<_> = singles
        .iter()
        .map(|single| single.decide(request))
        .collect();
    let expected = if said.contains(&Decision::Deny) {
        Decision::Deny
    } else if said.contains(&Decision::Allow) {
        Decision::Allow
    } else {
        Decision::NoMatch
    };
    assert_eq!(decision, expected, "{:?}: {said:?}", request.need);
    assert_eq!(decide_all(singles, request), decision);
    assert_eq!(decide_all(singles.iter().rev(), request), decision);
    assert_eq!(
        decide_all([policy, &deny_all(request.need)], request),
        Decision::Deny
    );
    assert_eq!(
        decide_all([&deny_all(request.need), policy], request),
        Decision::Deny
    );
}

/// The policy of each statement alone.
fn singles(json: &str, kind: PolicyKind) -> Vec<Policy> {
    let mut document: Value = serde_json::from_str(json).expect("the policy was read before");
    let statements = match document["Statement"].take() {
        Value::Array(statements) => statements,
        single => vec![single],
    };
    let single = |statement: Value| {
        document["Statement"] = statement;
        Policy::parse(&document.to_string(), kind).expect("each statement was read before")
    };
    statements.into_iter().map(single).collect()
}

fn deny_all(need: &Need) -> Policy {
    let action = need.action;
    let json = format!(
        "{{\"Version\":\"2012-10-17\",\"Statement\":{{\"Effect\":\"Deny\",\
         \"Action\":\"{action}\",\"Resource\":\"*\"}}}}"
    );
    Policy::parse(&json, PolicyKind::Identity).expect("the document is right")
}
