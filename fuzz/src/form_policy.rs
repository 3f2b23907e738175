//! Policies of forms: the JSON, a line `--`, then fields, `name=value` a line.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use forebay_s3::post_policy::PostPolicy;
use serde_json::Value;

use crate::form;
use crate::input::Input;

const BUCKET: &str = "bucket";

/// Fields that a policy lets pass obey each of its conditions, and none of them is unmentioned;
/// lengths are judged by a range.
pub fn check(data: &[u8]) {
    let mut input = Input(data);
    let json = input.until(b"\n--\n");
    let Ok(policy) = PostPolicy::parse(&STANDARD.encode(json)) else {
        return;
    };
    check_lengths(&policy);
    let lines = std::str::from_utf8(input.0).unwrap_or_default();
    let fields: Vec<_> = lines
        .split('\n')
        .filter_map(|line| line.split_once('='))
        .filter(|(name, _)| !name.contains('\r') && !name.eq_ignore_ascii_case("file"))
        .collect();
    let body = form::print_named(&fields, None, b"");
    let read = form::read(
        "multipart/form-data; boundary=a-boundary-of-our-own",
        &body,
        0,
    );
    let Ok(Some(fields)) = read.map(|form| form.fields) else {
        return;
    };
    if policy.check(&fields, BUCKET, 0).is_err() {
        return;
    }
    let document = serde_json::from_slice::<Value>(json);
    let Some(Value::Array(conditions)) = document
        .ok()
        .and_then(|mut document| document.get_mut("conditions").map(Value::take))
    else {
        return;
    };
    let value_of = |field: &str| match field {
        "bucket" => Some(BUCKET),
        field => fields.get(field),
    };
    let mut covered = Vec::new();
    for condition in &conditions {
        let Some((test, field, operand)) = parts(condition) else {
            continue;
        };
        let value = value_of(&field).expect("a field that a condition names is there");
        match test.as_str() {
            "eq" => assert_eq!(value, operand),
            "starts-with" => assert!(holds_start(&field, value, &operand), "{condition}"),
            _ => panic!("{test} is no test"),
        }
        covered.push(field);
    }
    for (name, _) in fields.iter() {
        let is_free = ["policy", "x-amz-signature"].contains(&name);
        assert!(is_free || name.starts_with("x-ignore-") || covered.iter().any(|c| c == name));
    }
    assert!(
        covered.iter().any(|field| field == "bucket"),
        "a policy is for one bucket"
    );
}

/// Of a content type that is a list, each member is judged.
fn holds_start(field: &str, value: &str, operand: &str) -> bool {
    value.starts_with(operand)
        || field == "content-type"
            && value
                .split(',')
                .all(|member| member.trim().starts_with(operand))
}

/// Test, field and operand; `None` for a range of lengths.
fn parts(condition: &Value) -> Option<(String, String, String)> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    match condition {
        Value::Object(simple) => {
            let (field, operand) = simple.iter().next()?;
            Some(("eq".to_owned(), field.to_ascii_lowercase(), text(operand)?))
        }
        Value::Array(list) => {
            let test = text(list.first()?)?.to_ascii_lowercase();
            if test == "content-length-range" {
                return None;
            }
            let field = text(list.get(1)?)?;
            let field = field
                .strip_prefix('$')
                .expect("no other can hold")
                .to_ascii_lowercase();
            Some((test, field, text(list.get(2)?)?))
        }
        _ => None,
    }
}

/// The lengths that pass are one range.
fn check_lengths(policy: &PostPolicy) {
    let mut passed = [false; 66];
    for (index, passes) in passed.iter_mut().enumerate() {
        let bytes = match index {
            0 => 0,
            65 => u64::MAX,
            index => 1 << (index - 1),
        };
        *passes = policy.check_length(bytes).is_ok();
        if *passes {
            assert!(policy.check_length_so_far(bytes).is_ok());
        }
    }
    let changes = passed.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!(changes <= 2, "{passed:?}");
}
