//! Names of topics on this wire: the same as everywhere (`topic`, or `tenant/namespace/topic`), where tenant and namespace have no
//! dot (serving.md, amendments). Clients are told the short form where there is one.

use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::TopicName;
use kafka_protocol::messages;
use kafka_protocol::protocol::StrBytes;

/// Tenant and namespace of short names.
const DEFAULT: (&str, &str) = ("public", "default");

/// Reads a name.
///
/// # Errors
/// `INVALID_NAME`.
pub(crate) fn parse(name: &str) -> Result<TopicName, Fault> {
    let invalid = |why: String| Fault::new(Reason::InvalidName, why);
    let parsed: TopicName = name
        .parse()
        .map_err(|error: hulse_proto::id::NameError| invalid(error.to_string()))?;
    if parsed.tenant().contains('.') || parsed.namespace().contains('.') {
        let words = "tenant and namespace have no dot on the Kafka wire";
        return Err(invalid(words.to_owned()));
    }
    Ok(parsed)
}

/// Tells a name.
pub(crate) fn tell(name: &TopicName) -> messages::TopicName {
    let told = match (name.tenant(), name.namespace()) == DEFAULT {
        true => name.topic(),
        false => name.as_str(),
    };
    StrBytes::from_string(told.to_owned()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_as_short_as_they_may_be_asked_for() {
        for (asked, told) in [
            ("greetings", "greetings"),
            ("a.b_c-d", "a.b_c-d"),
            ("public/default/x", "x"),
            ("acme/shop/orders", "acme/shop/orders"),
        ] {
            assert_eq!(tell(&parse(asked).unwrap()).as_str(), told);
        }
        for wrong in [
            "",
            "a/b",
            "ac.me/shop/orders",
            "acme/sh.op/orders",
            "..",
            "sp ace",
        ] {
            assert_eq!(
                parse(wrong).unwrap_err().reason,
                Reason::InvalidName,
                "{wrong}"
            );
        }
    }
}
