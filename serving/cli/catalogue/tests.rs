//! The catalogue is whole: every code has what, why and what to do, and what it tells people to run can be run.

use std::collections::BTreeSet;

use hulse_proto::error::{Fault, Reason};

use super::{Cause, Code};
use crate::advice;
use crate::failure::Failure;

fn all() -> Vec<Cause> {
    let servers = Reason::ALL.iter().copied().map(Cause::Servers);
    let ours = Code::ALL.iter().copied().map(Cause::Ours);
    servers.chain(ours).collect()
}

/// A failure whose maker said only what it was at.
fn bare(cause: Cause) -> Failure {
    match cause {
        Cause::Ours(code) => Failure::new(code, "cannot do it"),
        Cause::Servers(reason) => Failure::from_fault("cannot do it", &Fault::new(reason, "")),
    }
}

#[test]
fn every_code_has_what_why_and_what_to_do_wherever_it_is_made() {
    let mut numbers = BTreeSet::new();
    for cause in all() {
        assert!(numbers.insert(cause.number()), "{cause} stands twice");
        let told = bare(cause).to_string();
        let lines: Vec<&str> = told.lines().collect();
        let part = |name: &str| lines.iter().find_map(|line| line.trim().strip_prefix(name));
        assert_eq!(lines[0], format!("cannot do it [{cause}]"));
        assert!(
            part("why:").is_some_and(|why| why.trim().len() > 15),
            "{told}"
        );
        assert!(
            part("next:").is_some_and(|next| next.trim().len() > 15),
            "{told}"
        );
        let json = bare(cause).json();
        for name in ["code", "what", "why", "next"] {
            let words = json["error"][name].as_str();
            assert!(
                words.is_some_and(|words| !words.is_empty()),
                "{cause}: {name}"
            );
        }
    }
}

#[test]
fn commands_and_flags_that_are_advised_exist() {
    for cause in all() {
        // Flags that stand alone are those of the command that fails; most are consumers'.
        let faults = advice::faults("consume", cause.next());
        let ours = cause.number() > 9000;
        assert!(ours || faults.is_empty(), "{cause}: {faults:?}");
        let commands = faults.iter().any(|fault| fault.contains("no command"));
        assert!(!commands, "{cause}: {faults:?}");
    }
}

#[test]
fn page_in_the_tree_is_made_of_the_table() {
    let mut page =
        String::from("| code | name | exit | means | what to do |\n|---|---|---|---|---|\n");
    for cause in all() {
        let name = match cause {
            Cause::Servers(reason) => reason.as_str().to_owned(),
            Cause::Ours(code) => format!("{code:?}"),
        };
        let (meaning, next) = (cause.meaning(), cause.next());
        let exit = cause.exit() as u8;
        page.push_str(&format!(
            "| {cause} | {name} | {exit} | {meaning} | {next} |\n"
        ));
    }
    let text = include_str!("../errors.md");
    let table = text.find("| code |").map(|at| &text[at..]);
    assert_eq!(table, Some(page.as_str()), "paste the table:\n{page}");
}
