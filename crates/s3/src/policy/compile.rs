//! Compiles a policy document, keeping every fault with its place.

use super::{
    Effect, Fault, POLICY_BYTES_MAX, Policy, PolicyError, PolicyKind,
    actions::ActionSet,
    condition::Condition,
    json::Json,
    pattern::{Pattern, Variables, Wildcards},
    principal::{Named, Principals},
    statement::{Resources, Statement},
};

/// The elements of a document or statement, as they are in the JSON.
type Fields = [(String, Json)];

/// Compiles `json`; see [`Policy::parse`].
pub(super) fn compile(json: &str, kind: PolicyKind) -> Result<Policy, PolicyError> {
    let whole = |reason: String| PolicyError {
        faults: vec![Fault {
            place: "policy".to_owned(),
            reason,
        }],
    };
    if json.len() > POLICY_BYTES_MAX {
        return Err(whole(format!(
            "{} bytes; {POLICY_BYTES_MAX} are the most",
            json.len()
        )));
    }
    let document: Json =
        serde_json::from_str(json).map_err(|error| whole(format!("no valid JSON: {error}")))?;
    let Json::Object(fields) = document else {
        return Err(whole(format!(
            "the document is {}, not an object",
            document.kind()
        )));
    };
    let mut compiler = Compiler {
        kind,
        variables: Variables::Refused,
        faults: Vec::new(),
        warnings: Vec::new(),
    };
    let statements = compiler.document(&fields);
    if compiler.faults.is_empty() {
        Ok(Policy {
            statements,
            warnings: compiler.warnings,
        })
    } else {
        Err(PolicyError {
            faults: compiler.faults,
        })
    }
}

struct Compiler {
    kind: PolicyKind,
    variables: Variables,
    faults: Vec<Fault>,
    warnings: Vec<Fault>,
}

fn find<'a>(fields: &'a Fields, name: &str) -> Option<&'a Json> {
    fields
        .iter()
        .find(|(known, _)| known == name)
        .map(|(_, value)| value)
}

impl Compiler {
    fn fault(&mut self, place: &str, reason: impl Into<String>) {
        self.faults.push(Fault {
            place: place.to_owned(),
            reason: reason.into(),
        });
    }

    fn document(&mut self, fields: &Fields) -> Vec<Statement> {
        for (name, value) in fields {
            match (name.as_str(), value) {
                ("Version", Json::Text(version)) if version == "2012-10-17" => {
                    self.variables = Variables::Active;
                }
                ("Version", Json::Text(version)) if version == "2008-10-17" => {}
                ("Version", _) => self.fault("Version", "write \"2012-10-17\""),
                ("Id", Json::Text(_)) | ("Statement", _) => {}
                ("Id", other) => self.fault("Id", format!("is {}, not a string", other.kind())),
                (unknown, _) => self.fault(unknown, "no element of a policy"),
            }
        }
        let statements = match find(fields, "Statement") {
            Some(Json::List(list)) if !list.is_empty() => list.as_slice(),
            Some(one @ Json::Object(_)) => std::slice::from_ref(one),
            _ => {
                self.fault("Statement", "a policy has at least one statement");
                return Vec::new();
            }
        };
        let mut compiled = Vec::new();
        for (i, statement) in statements.iter().enumerate() {
            let place = format!("Statement[{i}]");
            match statement {
                Json::Object(fields) => compiled.extend(self.statement(&place, fields)),
                other => self.fault(&place, format!("is {}, not an object", other.kind())),
            }
        }
        compiled
    }

    /// Compiles a statement; `None` when it has a fault.
    fn statement(&mut self, place: &str, fields: &Fields) -> Option<Statement> {
        const ELEMENTS: [&str; 9] = [
            "Sid",
            "Effect",
            "Principal",
            "NotPrincipal",
            "Action",
            "NotAction",
            "Resource",
            "NotResource",
            "Condition",
        ];
        for (name, value) in fields {
            let place = format!("{place}.{name}");
            if !ELEMENTS.contains(&name.as_str()) {
                self.fault(&place, "no element of a statement");
            } else if name == "Sid" && !matches!(value, Json::Text(_)) {
                self.fault(&place, format!("is {}, not a string", value.kind()));
            }
        }
        let effect = match find(fields, "Effect") {
            Some(Json::Text(effect)) if effect == "Allow" => Some(Effect::Allow),
            Some(Json::Text(effect)) if effect == "Deny" => Some(Effect::Deny),
            _ => {
                self.fault(&format!("{place}.Effect"), "write \"Allow\" or \"Deny\"");
                None
            }
        };
        let principals = self.principals(place, fields, effect);
        let actions = self.actions(place, fields);
        let resources = self.resources(place, fields);
        let conditions = self.conditions(place, fields);
        Some(Statement {
            effect: effect?,
            principals: principals?,
            actions: actions?,
            resources: resources?,
            conditions,
        })
    }

    /// The one of `name` and `Not…name` that the statement has, and which it is.
    fn one_of<'a>(
        &mut self,
        place: &str,
        fields: &'a Fields,
        names: [&'static str; 2],
    ) -> Option<(&'static str, &'a Json)> {
        match names.map(|name| find(fields, name)) {
            [Some(value), None] => Some((names[0], value)),
            [None, Some(value)] => Some((names[1], value)),
            [None, None] => {
                self.fault(place, format!("{} is missing", names[0]));
                None
            }
            [Some(_), Some(_)] => {
                self.fault(
                    place,
                    format!("{} and {} exclude each other", names[0], names[1]),
                );
                None
            }
        }
    }

    fn principals(
        &mut self,
        place: &str,
        fields: &Fields,
        effect: Option<Effect>,
    ) -> Option<Principals> {
        const NAMES: [&str; 2] = ["Principal", "NotPrincipal"];
        if self.kind == PolicyKind::Identity {
            if NAMES.iter().any(|name| find(fields, name).is_some()) {
                self.fault(
                    place,
                    "the policy of a user is about that user: no principal",
                );
                return None;
            }
            return Some(Principals::Everyone);
        }
        let (name, value) = self.one_of(place, fields, NAMES)?;
        let place = format!("{place}.{name}");
        let named = match Named::parse(value) {
            Ok(named) => named,
            Err(reason) => {
                self.fault(&place, reason);
                return None;
            }
        };
        match (name, named) {
            ("Principal", Named::Everyone) => Some(Principals::Everyone),
            ("Principal", Named::Users(users)) => Some(Principals::Only(users)),
            (_, Named::Users(users)) if effect != Some(Effect::Allow) => {
                Some(Principals::AllBut(users))
            }
            (_, Named::Users(_)) => {
                self.fault(
                    &place,
                    "goes with Deny only: an Allow would include the anonymous",
                );
                None
            }
            (_, Named::Everyone) => {
                self.fault(&place, "excludes everyone, so the statement never applies");
                None
            }
        }
    }

    fn actions(&mut self, place: &str, fields: &Fields) -> Option<ActionSet> {
        let (name, value) = self.one_of(place, fields, ["Action", "NotAction"])?;
        let mut set = ActionSet::EMPTY;
        for (place, pattern) in self.texts(&format!("{place}.{name}"), value)? {
            let service = pattern.split_once(':').map(|(service, _)| service);
            let spelled = |b: u8| b.is_ascii_alphanumeric() || b":-*?".contains(&b);
            if (service.is_none_or(str::is_empty) && pattern != "*")
                || !pattern.bytes().all(spelled)
            {
                self.fault(
                    &place,
                    format!("{pattern:?} is no action such as \"s3:GetObject\""),
                );
                continue;
            }
            let matching = ActionSet::matching(pattern);
            if matching == ActionSet::EMPTY {
                let reason = format!("{pattern:?} is an action that no request here needs");
                self.warnings.push(Fault { place, reason });
            }
            set = set.union(matching);
        }
        Some(if name == "Action" {
            set
        } else {
            set.complement()
        })
    }

    fn resources(&mut self, place: &str, fields: &Fields) -> Option<Resources> {
        let (name, value) = self.one_of(place, fields, ["Resource", "NotResource"])?;
        let mut patterns = Vec::new();
        for (place, arn) in self.texts(&format!("{place}.{name}"), value)? {
            match resource(arn, self.variables) {
                Ok(pattern) => patterns.push(pattern),
                Err(reason) => self.fault(&place, reason),
            }
        }
        Some(if name == "Resource" {
            Resources::Only(patterns)
        } else {
            Resources::AllBut(patterns)
        })
    }

    fn conditions(&mut self, place: &str, fields: &Fields) -> Vec<Condition> {
        let place = format!("{place}.Condition");
        let mut conditions = Vec::new();
        let operators = match find(fields, "Condition") {
            None => return conditions,
            Some(Json::Object(operators)) => operators,
            Some(other) => {
                self.fault(&place, format!("is {}, not an object", other.kind()));
                return conditions;
            }
        };
        for (operator, keys) in operators {
            let place = format!("{place}.{operator}");
            let Json::Object(keys) = keys else {
                self.fault(&place, format!("is {}, not an object", keys.kind()));
                continue;
            };
            for (key, values) in keys {
                match Condition::compile(operator, key, values, self.variables) {
                    Ok(condition) => conditions.push(condition),
                    Err(reason) => self.fault(&format!("{place}.{key}"), reason),
                }
            }
        }
        conditions
    }

    /// One string or a list of at least one, each with its place.
    fn texts<'a>(&mut self, place: &str, value: &'a Json) -> Option<Vec<(String, &'a str)>> {
        let values = match value {
            Json::Text(text) => return Some(vec![(place.to_owned(), text)]),
            Json::List(values) if !values.is_empty() => values,
            _ => {
                self.fault(place, "is neither a string nor a list of strings");
                return None;
            }
        };
        let mut texts = Vec::new();
        for (i, value) in values.iter().enumerate() {
            let place = format!("{place}[{i}]");
            match value {
                Json::Text(text) => texts.push((place, text.as_str())),
                other => self.fault(&place, format!("is {}, not a string", other.kind())),
            }
        }
        Some(texts)
    }
}

/// Compiles what follows `arn:aws:s3:::`, or `*`.
fn resource(arn: &str, variables: Variables) -> Result<Pattern, String> {
    let refuse = || {
        format!("{arn:?} names no bucket or object; write \"arn:aws:s3:::bucket/key*\" or \"*\"")
    };
    let name = match arn.splitn(6, ':').collect::<Vec<_>>()[..] {
        ["*"] => "*",
        [
            "arn",
            "aws" | "aws-cn" | "aws-us-gov" | "*",
            "s3",
            "" | "*",
            "" | "*",
            name,
        ] if !name.is_empty() => name,
        _ => return Err(refuse()),
    };
    Pattern::compile(name, Wildcards::Active, variables)
}
