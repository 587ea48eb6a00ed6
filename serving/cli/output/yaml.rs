//! YAML of JSON values: block style, and quotes wherever a plain word could be taken for something else.

use serde_json::Value;

/// The document, with a newline at its end.
pub(crate) fn yaml(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Object(map) if !map.is_empty() => block(value, 0, &mut out),
        Value::Array(items) if !items.is_empty() => block(value, 0, &mut out),
        leaf => {
            out.push_str(&scalar(leaf));
            out.push('\n');
        }
    }
    out
}

/// Writes a list or map that is not empty, each line indented.
fn block(value: &Value, depth: usize, out: &mut String) {
    let indent = "  ".repeat(depth);
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                out.push_str(&format!("{indent}{}:", word(key)));
                below(value, depth + 1, out);
            }
        }
        Value::Array(items) => {
            for item in items {
                let at = out.len();
                match item {
                    Value::Object(map) if !map.is_empty() => {
                        // The first line of the map stands behind the dash, the others under it.
                        block(item, depth + 1, out);
                        out.replace_range(at..at + indent.len() + 2, &format!("{indent}- "));
                    }
                    item => {
                        out.push_str(&format!("{indent}-"));
                        below(item, depth + 1, out);
                    }
                }
            }
        }
        leaf => out.push_str(&scalar(leaf)),
    }
}

fn below(value: &Value, depth: usize, out: &mut String) {
    let nested = match value {
        Value::Object(map) => !map.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => false,
    };
    if nested {
        out.push('\n');
        block(value, depth, out);
    } else {
        out.push_str(&format!(" {}\n", scalar(value)));
    }
}

fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) => word(text),
        other => other.to_string(),
    }
}

/// A word as it is where nobody can misread it, else as JSON writes it, which YAML reads.
fn word(text: &str) -> String {
    let plain = text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/'))
        && !is_taken(text);
    match plain {
        true => text.to_owned(),
        false => Value::from(text).to_string(),
    }
}

/// Words that some reader of YAML takes for a truth value or for nothing.
fn is_taken(text: &str) -> bool {
    const TAKEN: [&str; 9] = ["true", "false", "yes", "no", "on", "off", "null", "y", "n"];
    TAKEN.contains(&text.to_ascii_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn documents_are_written_in_block_style() {
        let value = json!({
            "topic": "public/default/orders",
            "created": null,
            "partition": [{"index": 0, "owner": "127.0.0.1:7400"}, {"index": 1, "owner": ""}],
            "bookies": ["a", "no"],
            "nested": [[1, 2], []],
            "empty": {},
        });
        let expected = "\
bookies:
  - a
  - \"no\"
created: null
empty: {}
nested:
  -
    - 1
    - 2
  - []
partition:
  - index: 0
    owner: \"127.0.0.1:7400\"
  - index: 1
    owner: \"\"
topic: public/default/orders
";
        assert_eq!(yaml(&value), expected);
        assert_eq!(yaml(&json!([])), "[]\n");
        assert_eq!(yaml(&json!("a: b\n")), "\"a: b\\n\"\n");
    }
}
