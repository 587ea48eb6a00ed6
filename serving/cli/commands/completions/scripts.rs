//! The scripts. What clap makes knows commands and flags; what is added asks this program for the names that could stand where the line
//! ends, and leaves the line to clap's part where there are none.

use clap::CommandFactory as _;
use clap_complete::{Shell as ClapShell, generate};

use super::names;
use crate::arguments::{Arguments, Completions, Shell};
use crate::failure::Stop;
use crate::output::Output;

/// Behind clap's script for bash. The line is cut at its spaces: bash's own words end at `:` and `=` too.
const BASH: &str = r#"
_hulse_names() {
    local -a line
    read -ra line <<< "${COMP_LINE:0:COMP_POINT}"
    [[ "${COMP_LINE:0:COMP_POINT}" == *[[:space:]] ]] && line+=("")
    mapfile -t COMPREPLY < <(hulse completions bash -- "${line[@]}" 2>/dev/null)
    ((${#COMPREPLY[@]})) || _hulse "$@"
}
complete -F _hulse_names -o nosort -o bashdefault -o default hulse
"#;

/// Behind clap's script for fish.
const FISH: &str = r#"
function __hulse_names
    set -g __hulse_found (hulse completions fish -- (commandline -opc) (commandline -ct) 2>/dev/null)
    test (count $__hulse_found) -gt 0
end
complete -c hulse -f -n __hulse_names -a '$__hulse_found'
complete -c hulse -x -n __hulse_names -s s -l subscription -l profile -l topic -a '$__hulse_found'
"#;

/// Behind clap's script for zsh.
const ZSH: &str = r#"
_hulse_names() {
    local -a names
    names=(${(f)"$(hulse completions zsh -- "${(@)words[1,CURRENT-1]}" "$PREFIX" 2>/dev/null)"})
    if (( $#names )); then compadd -a names; else _hulse "$@"; fi
}
compdef _hulse_names hulse
"#;

/// Runs it: the script, or the names that could end a line.
///
/// # Errors
/// The output is closed. Names that cannot be had are none.
pub(crate) fn run(completions: &Completions, output: Output) -> Result<(), Stop> {
    match completions.line.as_slice() {
        [] => output.text(&script(completions.shell)),
        line => {
            let lines = names::at_the_end_of(line).into_iter();
            output.text(&lines.map(|name| name + "\n").collect::<String>())
        }
    }
}

fn script(shell: Shell) -> String {
    let mut out = Vec::new();
    let (of_clap, more) = match shell {
        Shell::Bash => (ClapShell::Bash, BASH),
        Shell::Zsh => (ClapShell::Zsh, ZSH),
        Shell::Fish => (ClapShell::Fish, FISH),
        Shell::Powershell => (ClapShell::PowerShell, ""),
    };
    generate(of_clap, &mut Arguments::command(), "hulse", &mut out);
    String::from_utf8_lossy(&out).into_owned() + more
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn script_of_each_shell_knows_commands_and_asks_for_names() {
        for (shell, asks) in [
            (Shell::Bash, "hulse completions bash -- "),
            (Shell::Zsh, "hulse completions zsh -- "),
            (Shell::Fish, "hulse completions fish -- "),
            (Shell::Powershell, ""),
        ] {
            let script = script(shell);
            for word in ["accept-loss", "compression", asks] {
                assert!(script.contains(word), "{shell:?}: {word}");
            }
        }
    }
}
