//! `restive completions bash|zsh|fish`: a script that completes commands and options, made of the
//! command line's own description.

use crate::args::{Args, Completions, Shell};
use crate::output;
use clap::{Arg, Command, CommandFactory as _};
use std::fmt::Write as _;

pub fn run(completions: &Completions) -> anyhow::Result<()> {
    let mut command = Args::command();
    command.build();
    let words = Words::of(&command);
    output::print(&match completions.shell {
        Shell::Bash => bash(&words),
        Shell::Zsh => zsh(&words),
        Shell::Fish => fish(&words),
    })
}

/// What can follow each command, in order.
struct Words(Vec<Level>);

/// One command with its path, such as `keys create`; empty for the program itself.
struct Level {
    path: String,
    commands: Vec<(String, String)>,
    options: Vec<Completed>,
}

struct Completed {
    name: String,
    about: String,
    /// The values that it takes; none: any, or a file.
    values: Vec<String>,
    takes_value: bool,
}

impl Words {
    fn of(command: &Command) -> Words {
        let mut levels = Vec::new();
        collect(command, "", &mut levels);
        Words(levels)
    }
}

fn collect(command: &Command, path: &str, levels: &mut Vec<Level>) {
    let shown = |command: &&Command| !command.is_hide_set() && command.get_name() != "help";
    let commands: Vec<&Command> = command.get_subcommands().filter(shown).collect();
    levels.push(Level {
        path: path.to_owned(),
        commands: commands
            .iter()
            .map(|command| (command.get_name().to_owned(), about(command.get_about())))
            .collect(),
        options: command
            .get_arguments()
            .filter(|arg| !arg.is_hide_set())
            .filter_map(option)
            .collect(),
    });
    for command in commands {
        let path = format!("{path} {}", command.get_name());
        collect(command, path.trim_start(), levels);
    }
}

fn option(arg: &Arg) -> Option<Completed> {
    let takes_value = arg.get_action().takes_values();
    let values = match takes_value {
        true => arg.get_possible_values().iter().map(|one| one.get_name().to_owned()).collect(),
        false => Vec::new(),
    };
    let name = arg.get_long()?.to_owned();
    Some(Completed { name, about: about(arg.get_help()), values, takes_value })
}

/// The first line of a help text, without characters that are special in a shell.
fn about(text: Option<&clap::builder::StyledStr>) -> String {
    let text = text.map(ToString::to_string).unwrap_or_default();
    let line = text.lines().next().unwrap_or_default();
    line.chars().filter(|c| !"'\"`\\$[]:".contains(*c)).collect()
}

fn bash(words: &Words) -> String {
    let mut cases = String::new();
    for level in &words.0 {
        let commands = level.commands.iter().map(|(name, _)| name.clone());
        let options = level.options.iter().map(|option| format!("--{}", option.name));
        let all: Vec<String> = commands.chain(options).collect();
        // Writing to a string cannot fail.
        let _ = writeln!(cases, "    '{}') words='{}' ;;", level.path, all.join(" "));
    }
    let mut values = String::new();
    for level in &words.0 {
        for option in level.options.iter().filter(|option| !option.values.is_empty()) {
            let (path, name, all) = (&level.path, &option.name, option.values.join(" "));
            let _ = writeln!(values, "    '{path} --{name}') words='{all}' ;;");
        }
    }
    let paths: Vec<&str> = words.0.iter().map(|level| level.path.as_str()).collect();
    format!(
        "# bash completion of restive: source <(restive completions bash)
_restive() {{
  local word path='' known words=''
  local current=\"${{COMP_WORDS[COMP_CWORD]}}\" previous=\"${{COMP_WORDS[COMP_CWORD-1]}}\"
  known='{}'
  for word in \"${{COMP_WORDS[@]:1:COMP_CWORD-1}}\"; do
    local longer=\"${{path:+$path }}$word\"
    [[ \"|$known|\" == *\"|$longer|\"* ]] && path=$longer
  done
  case \"$path $previous\" in
{values}  esac
  if [ -z \"$words\" ]; then
    case \"$path\" in
{cases}    esac
  fi
  COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))
}}
complete -o default -F _restive restive
",
        paths.join("|")
    )
}

fn zsh(words: &Words) -> String {
    let mut cases = String::new();
    for level in &words.0 {
        let commands = level.commands.iter().map(|(name, about)| format!("'{name}:{about}'"));
        let options =
            level.options.iter().map(|option| format!("'--{}:{}'", option.name, option.about));
        let all: Vec<String> = commands.chain(options).collect();
        let _ = writeln!(cases, "    ('{}') found=({}) ;;", level.path, all.join(" "));
    }
    let paths: Vec<&str> = words.0.iter().map(|level| level.path.as_str()).collect();
    format!(
        "#compdef restive
# zsh completion of restive: restive completions zsh > a folder of $fpath, as _restive
_restive() {{
  local part place='' known='{}' longer
  local -a found
  for part in \"${{(@)words[2,CURRENT-1]}}\"; do
    longer=\"${{place:+$place }}$part\"
    [[ \"|$known|\" == *\"|$longer|\"* ]] && place=$longer
  done
  case \"$place\" in
{cases}  esac
  _describe 'restive' found || _files
}}
compdef _restive restive
",
        paths.join("|")
    )
}

fn fish(words: &Words) -> String {
    let mut lines =
        String::from("# fish completion of restive: restive completions fish | source\n");
    for level in &words.0 {
        let condition = match level.path.as_str() {
            "" => "__fish_use_subcommand".to_owned(),
            path => {
                let seen =
                    path.split(' ').map(|word| format!("__fish_seen_subcommand_from {word}"));
                seen.collect::<Vec<_>>().join("; and ")
            }
        };
        for (name, about) in &level.commands {
            let _ =
                writeln!(lines, "complete -c restive -f -n '{condition}' -a {name} -d '{about}'");
        }
        for option in &level.options {
            let value = match (option.takes_value, option.values.as_slice()) {
                (false, _) => String::new(),
                (true, []) => " -r".to_owned(),
                (true, values) => format!(" -x -a '{}'", values.join(" ")),
            };
            let (name, about) = (&option.name, &option.about);
            let _ = writeln!(
                lines,
                "complete -c restive -n '{condition}' -l {name}{value} -d '{about}'"
            );
        }
    }
    lines
}
