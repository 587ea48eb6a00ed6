//! `hulse completions`: the script of a shell. What clap makes knows commands and flags; what is added asks the server for topics.

use clap::CommandFactory as _;
use clap_complete::{Shell as ClapShell, generate};

use crate::arguments::{Arguments, Completions, Shell};
use crate::failure::Stop;
use crate::output::Output;

/// How names of topics are asked for: quickly, or not at all.
const ASK: &str = "hulse topics list --output name --timeout 1s 2>/dev/null";

/// Behind clap's script for bash: a word that is no flag, behind a command that takes topics, is completed with their names.
const BASH: &str = r#"
_hulse_with_topics() {
    _hulse "$@"
    local word="${COMP_WORDS[COMP_CWORD]}"
    [[ "$word" == -* ]] && return
    case " ${COMP_WORDS[*]:1:COMP_CWORD-1} " in
        *" produce "*|*" consume "*|*" verify "*|*" describe "*|*" delete "*|*" partitions "*|*" peek "*|*" copy "*)
            COMPREPLY+=($(compgen -W "$(ASK)" -- "$word")) ;;
    esac
}
complete -F _hulse_with_topics -o nosort -o bashdefault -o default hulse
"#;

/// Behind clap's script for fish.
const FISH: &str = r#"
complete -c hulse -f -n "__fish_seen_subcommand_from produce consume verify" -a "(ASK)"
complete -c hulse -f -n "__fish_seen_subcommand_from topics; and __fish_seen_subcommand_from describe delete partitions peek copy" -a "(ASK)"
"#;

/// Behind clap's script for zsh: positional arguments that are topics.
const ZSH: &str = r#"
_hulse_topics() {
    local -a names
    names=(${(f)"$(ASK)"})
    compadd -a names
}
"#;

/// Runs it.
///
/// # Errors
/// The output is closed.
pub(crate) fn run(completions: &Completions, output: Output) -> Result<(), Stop> {
    output.text(&script(completions.shell))
}

fn script(shell: Shell) -> String {
    let mut out = Vec::new();
    let of_clap = match shell {
        Shell::Bash => ClapShell::Bash,
        Shell::Zsh => ClapShell::Zsh,
        Shell::Fish => ClapShell::Fish,
        Shell::Powershell => ClapShell::PowerShell,
    };
    generate(of_clap, &mut Arguments::command(), "hulse", &mut out);
    let made = String::from_utf8_lossy(&out).into_owned();
    match shell {
        Shell::Bash => made + &BASH.replace("ASK", ASK),
        Shell::Fish => made + &FISH.replace("ASK", ASK),
        Shell::Zsh => with_topics(&made) + &ZSH.replace("ASK", ASK),
        Shell::Powershell => made,
    }
}

/// Lets zsh ask for topics where an argument is one.
fn with_topics(made: &str) -> String {
    let lines = made.lines().map(|line| {
        let topic = [
            ":topic ",
            ":topics ",
            ":source ",
            ":target ",
            "::topics ",
            "*::topics ",
        ]
        .iter()
        .any(|name| line.contains(name));
        match topic {
            true => line.replace(":_default'", ":_hulse_topics'"),
            false => line.to_owned(),
        }
    });
    lines.map(|line| line + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn script_of_each_shell_knows_commands_and_asks_for_topics() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = script(shell);
            for word in ["accept-loss", "compression", ASK] {
                assert!(script.contains(word), "{shell:?}: {word}");
            }
        }
        assert!(script(Shell::Zsh).contains(":_hulse_topics'"));
        assert!(script(Shell::Powershell).contains("accept-loss"));
    }
}
