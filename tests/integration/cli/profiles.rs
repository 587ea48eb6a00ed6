//! Profiles, and what goes before what: a flag, the environment, the profile in force, the default.

use super::super::server::Server;
use super::{PORT, alone, text};

/// Nobody listens there.
const NOBODY: &str = "127.0.0.1:17759";

#[test]
fn flag_goes_before_environment_before_profile_before_default() {
    let server = Server::start(PORT + 50);
    let folder = tempfile::tempdir().unwrap();
    let good = server.address();
    let (good, nobody) = (good.as_str(), NOBODY);
    let run = |words: &[&str], variables: &[(&str, &str)]| alone(folder.path(), words, variables);
    for (name, address) in [("good", good), ("bad", nobody)] {
        let made = run(&["--server", address, "profile", "create", name], &[]);
        assert!(made.status.success(), "{}", text(&made.stderr));
    }
    // The last one made is in force.
    for (words, variables, works) in [
        (vec!["topics", "list"], vec![], false),
        (vec!["--profile", "good", "topics", "list"], vec![], true),
        (
            vec!["topics", "list"],
            vec![("HULSE_PROFILE", "good")],
            true,
        ),
        (
            vec!["--profile", "bad", "topics", "list"],
            vec![("HULSE_PROFILE", "good")],
            false,
        ),
        (vec!["topics", "list"], vec![("HULSE_SERVER", good)], true),
        (
            vec!["--profile", "good", "topics", "list"],
            vec![("HULSE_SERVER", nobody)],
            true,
        ),
        (
            vec!["topics", "list"],
            vec![("HULSE_PROFILE", "good"), ("HULSE_SERVER", nobody)],
            false,
        ),
        (
            vec!["--profile", "bad", "topics", "list", "--server", good],
            vec![],
            true,
        ),
        (
            vec!["topics", "list", "--server", good],
            vec![("HULSE_SERVER", nobody)],
            true,
        ),
    ] {
        let output = run(&words, &variables);
        let expected = if works { Some(0) } else { Some(6) };
        assert_eq!(
            output.status.code(),
            expected,
            "{words:?} {variables:?}: {}",
            text(&output.stderr)
        );
    }
    assert!(run(&["profile", "use", "good"], &[]).status.success());
    assert!(run(&["topics", "list"], &[]).status.success());
    assert!(run(&["profile", "use", "-"], &[]).status.success());
    let prompt = run(&["profile", "prompt"], &[]);
    assert_eq!(text(&prompt.stdout), "(hulse:bad) ");
}

#[test]
fn address_of_the_default_is_used_where_nothing_says_another() {
    // No profile at all: the default's address, where this test has no server.
    let bare = tempfile::tempdir().unwrap();
    let output = alone(
        bare.path(),
        &["topics", "list", "--timeout", "1s", "-j"],
        &[],
    );
    if output.status.code() != Some(0) {
        assert!(
            text(&output.stderr).contains("127.0.0.1:7400"),
            "{}",
            text(&output.stderr)
        );
    }
}

#[test]
fn profile_with_an_address_that_is_none_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for address in ["127.0.0.1", "here", "a:7400,b", "a:port"] {
        let words = ["--server", address, "profile", "create", "p"];
        let refused = alone(folder.path(), &words, &[]);
        let told = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{address}: {told}");
        assert!(told.contains("HOST:PORT"), "{address}: {told}");
    }
    let listed = alone(folder.path(), &["profile", "list", "--output", "name"], &[]);
    assert_eq!(text(&listed.stdout), "");
}

#[test]
fn profile_is_edited_by_the_users_editor_and_a_wrong_file_is_not_taken() {
    let folder = tempfile::tempdir().unwrap();
    let run = |words: &[&str], variables: &[(&str, &str)]| alone(folder.path(), words, variables);
    assert!(
        run(&["profile", "create", "a", "--server", "x:1"], &[])
            .status
            .success()
    );
    let edited = run(
        &["profile", "edit", "--output", "name"],
        &[("VISUAL", "sed -i s/x:1/y:2/")],
    );
    assert_eq!(text(&edited.stdout), "a\n", "{}", text(&edited.stderr));
    let shown = run(&["profile", "show", "a", "-j"], &[]);
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!(shown["server"], "y:2");
    let wrong = run(
        &["profile", "edit"],
        &[("VISUAL", "sed -i s/server/sever/")],
    );
    assert_eq!(wrong.status.code(), Some(1), "{}", text(&wrong.stderr));
    assert!(text(&run(&["profile", "show", "a"], &[]).stdout).contains("y:2"));
    let again = run(&["profile", "create", "a"], &[]);
    assert_eq!(again.status.code(), Some(5));
}

#[test]
fn file_of_profiles_that_cannot_be_understood_stops_nobody_who_names_a_server() {
    let server = Server::start(18_650);
    let folder = tempfile::tempdir().unwrap();
    let address = server.address();
    let broken = "current = \"gone\"\nnot toml\n";
    let file = folder.path().join("profiles.toml");
    std::fs::write(&file, broken).unwrap();
    let run = |words: &[&str], variables: &[(&str, &str)]| alone(folder.path(), words, variables);
    for (words, variables) in [
        (
            &["--server", address.as_str(), "topics", "list"][..],
            &[][..],
        ),
        (&["topics", "list"], &[("HULSE_SERVER", address.as_str())]),
    ] {
        let output = run(words, variables);
        let told = text(&output.stderr);
        assert!(output.status.success(), "{words:?}: {told}");
        assert!(told.contains("no profile is heeded"), "{words:?}: {told}");
    }
    let quiet = run(&["--server", &address, "-q", "topics", "list"], &[]);
    assert_eq!(
        (quiet.status.code(), text(&quiet.stderr)),
        (Some(0), String::new())
    );
    for words in [
        &["topics", "list"][..],
        &["--profile", "x", "--server", &address, "topics", "list"],
    ] {
        let refused = run(words, &[]);
        let told = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{words:?}: {told}");
        assert!(told.contains("hulse profile edit"), "{words:?}: {told}");
    }
    // The user's editor mends it.
    let edited = run(&["profile", "edit"], &[("EDITOR", "sed -i d")]);
    assert!(edited.status.success(), "{}", text(&edited.stderr));
    assert!(run(&["profile", "list"], &[]).status.success());
}
