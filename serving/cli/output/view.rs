//! What a command answers with: a typed value that knows its fields, its columns and its name.
//!
//! One declaration per type ([`View`]); every form of `--output` is made of it by `writer`. The fields that `--output help` prints are
//! held to the real output: each value that is written is compared with them where debug assertions are on, so in every test.

use serde::Serialize;
use serde_json::Value;

/// A value that a command answers with.
pub(crate) trait View: Serialize {
    /// Every field of its JSON, in order.
    const FIELDS: &'static [Field];

    /// What `--output name` prints: the argument that another command would take for it.
    fn name(&self) -> String;

    /// The rows for a person; more columns when `wide`.
    fn text(rows: &[Self], wide: bool) -> String
    where
        Self: Sized;
}

/// What stands in a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Characters.
    Text,
    /// A whole number.
    Integer,
    /// A number, perhaps with a fraction.
    Number,
    /// true or false.
    Boolean,
}

/// One field of an answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Field {
    /// Names from the top, joined by dots; `[]` behind the name of a list, for each of its items.
    pub(crate) path: &'static str,
    /// What stands in it.
    pub(crate) kind: Kind,
    /// It may be null: not known, or there is none.
    pub(crate) nullable: bool,
    /// What it means.
    pub(crate) meaning: &'static str,
}

impl Field {
    const fn new(path: &'static str, kind: Kind, meaning: &'static str) -> Self {
        Self {
            path,
            kind,
            nullable: false,
            meaning,
        }
    }

    /// Characters.
    pub(crate) const fn text(path: &'static str, meaning: &'static str) -> Self {
        Self::new(path, Kind::Text, meaning)
    }

    /// A whole number.
    pub(crate) const fn integer(path: &'static str, meaning: &'static str) -> Self {
        Self::new(path, Kind::Integer, meaning)
    }

    /// A number with a fraction.
    pub(crate) const fn number(path: &'static str, meaning: &'static str) -> Self {
        Self::new(path, Kind::Number, meaning)
    }

    /// true or false.
    pub(crate) const fn boolean(path: &'static str, meaning: &'static str) -> Self {
        Self::new(path, Kind::Boolean, meaning)
    }

    /// It may be null.
    pub(crate) const fn or_null(mut self) -> Self {
        self.nullable = true;
        self
    }

    /// The type, for a person.
    pub(crate) fn kind_words(&self) -> String {
        let kind = match self.kind {
            Kind::Text => "text",
            Kind::Integer => "integer",
            Kind::Number => "number",
            Kind::Boolean => "boolean",
        };
        let null = if self.nullable { " or null" } else { "" };
        format!("{kind}{null}")
    }

    fn takes(&self, value: &Value) -> bool {
        match value {
            Value::Null => self.nullable,
            Value::String(_) => self.kind == Kind::Text,
            Value::Bool(_) => self.kind == Kind::Boolean,
            Value::Number(number) => match self.kind {
                Kind::Integer => !number.is_f64(),
                kind => kind == Kind::Number,
            },
            Value::Array(_) | Value::Object(_) => false,
        }
    }
}

/// What of a value is not as its fields say; empty when all is.
pub(crate) fn strays(value: &Value, fields: &[Field]) -> Vec<String> {
    let mut found = Vec::new();
    walk(value, "", fields, &mut found);
    found
}

fn walk(value: &Value, path: &str, fields: &[Field], found: &mut Vec<String>) {
    match value {
        Value::Object(object) => {
            let join = |name: &str| match path {
                "" => name.to_owned(),
                path => format!("{path}.{name}"),
            };
            for (name, value) in object {
                walk(value, &join(name), fields, found);
            }
            for field in fields.iter().filter(|field| is_child(field.path, path)) {
                let name = field.path.rsplit('.').next().unwrap_or(field.path);
                let name = name.split("[]").next().unwrap_or(name);
                if !object.contains_key(name) {
                    found.push(format!("{} is missing", field.path));
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                walk(item, &format!("{path}[]"), fields, found);
            }
        }
        leaf => match fields.iter().find(|field| field.path == path) {
            None if leaf.is_null() && fields.iter().any(|f| f.path.starts_with(path)) => {}
            None => found.push(format!("{path} is not declared")),
            Some(field) if !field.takes(leaf) => found.push(format!("{path} is {leaf}")),
            Some(_) => {}
        },
    }
}

/// True for a leaf that stands right in the object at `path`.
fn is_child(field: &str, path: &str) -> bool {
    let rest = match path {
        "" => Some(field),
        path => field
            .strip_prefix(path)
            .and_then(|rest| rest.strip_prefix('.')),
    };
    rest.is_some_and(|rest| !rest.contains('.'))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const FIELDS: &[Field] = &[
        Field::text("name", "its name"),
        Field::integer("count", "how many").or_null(),
        Field::number("part[].share", "of the whole"),
        Field::text("tags[]", "labels"),
    ];

    #[test]
    fn value_is_held_to_its_fields() {
        let good = json!({"name": "a", "count": null, "part": [{"share": 1}], "tags": ["x"]});
        assert_eq!(strays(&good, FIELDS), Vec::<String>::new());
        let empty = json!({"name": "a", "count": 3, "part": [], "tags": []});
        assert_eq!(strays(&empty, FIELDS), Vec::<String>::new());
        for (wrong, told) in [
            (
                json!({"name": null, "count": 1, "part": [], "tags": []}),
                "name is null",
            ),
            (
                json!({"count": 1, "part": [], "tags": []}),
                "name is missing",
            ),
            (
                json!({"name": "a", "count": 1.5, "part": [], "tags": []}),
                "count is 1.5",
            ),
            (
                json!({"name": "a", "count": 1, "part": [{}], "tags": []}),
                "part[].share is missing",
            ),
            (
                json!({"name": "a", "count": 1, "part": [], "tags": [], "more": 1}),
                "more is not declared",
            ),
            (
                json!({"name": "a", "count": 1, "part": []}),
                "tags[] is missing",
            ),
        ] {
            assert_eq!(strays(&wrong, FIELDS), [told], "{wrong}");
        }
    }
}
