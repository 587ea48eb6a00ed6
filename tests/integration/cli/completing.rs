//! Completion as a shell does it: the script is read by a bash, and asked what could end a line.

use std::process::Command;

use super::super::server::{HULSE, Server};
use super::{alone, done, text};

const PORT: u16 = 18_600;

/// Reads the script and completes `$LINE` as bash does when the tabulator is pressed at its end.
const PRESS: &str = r#"
eval "$(hulse completions bash)"
COMP_LINE=$LINE COMP_POINT=${#LINE}
read -ra COMP_WORDS <<< "$LINE"
[[ "$LINE" == *' ' ]] && COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_hulse_names hulse "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\n' "${COMPREPLY[@]}"
"#;

#[test]
fn bash_completes_topics_by_their_short_names_subscriptions_and_profiles() {
    let server = Server::start(PORT);
    done(
        &server,
        &["topics", "create", "orders", "other", "acme/shop/orders"],
        "",
    );
    for name in ["audit", "billing"] {
        done(&server, &["subs", "create", "orders", name], "");
    }
    let folder = tempfile::tempdir().unwrap();
    for (name, address) in [
        ("here", server.address()),
        ("gone", "127.0.0.1:18603".into()),
    ] {
        let made = ["profile", "create", name, "--server", &address];
        assert!(alone(folder.path(), &made, &[]).status.success());
    }
    assert!(
        alone(folder.path(), &["profile", "use", "here"], &[])
            .status
            .success()
    );
    let bin = std::path::Path::new(HULSE).parent().unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let press = |line: &str| {
        let pressed = Command::new("bash")
            .args(["--norc", "-c", PRESS])
            .current_dir(folder.path())
            .env("PATH", &path)
            .env("HULSE_PROFILES", folder.path().join("profiles.toml"))
            .env_remove("HULSE_SERVER")
            .env_remove("HULSE_PROFILE")
            .env("LINE", line)
            .output()
            .expect("bash can be started");
        assert!(pressed.stderr.is_empty(), "{}", text(&pressed.stderr));
        text(&pressed.stdout)
    };
    let at = format!("hulse --server {} consume ot", server.address());
    for (line, ends) in [
        ("hulse consume or", "orders\n"),
        (
            "hulse topics describe ",
            "acme/shop/orders\norders\nother\n",
        ),
        ("hulse verify public/default/ot", "public/default/other\n"),
        ("hulse consume orders -s ", "audit\nbilling\n"),
        ("hulse subs seek orders b", "billing\n"),
        ("hulse topics list --profile ", "gone\nhere\n"),
        ("hulse profile use h", "here\n"),
        // The server of the line goes before that of the profile, and a server that is gone knows no names.
        (&at, "other\n"),
        ("hulse --profile gone subs create or", "\n"),
        // Flags and commands are clap's part.
        ("hulse topics desc", "describe\n"),
        ("hulse consume orders --no-a", "--no-ack\n"),
    ] {
        assert_eq!(press(line), ends, "{line}");
    }
}
