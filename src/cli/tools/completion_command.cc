// `tern completion`: what a shell needs to complete commands and flags. The flags come from the program's own --help,
// so that they are those of the program that is installed.
#include <fmt/format.h>

#include <string>

#include "app/options.h"
#include "app/report.h"
#include "cli/commands.h"
#include "cli/help.h"

namespace tern::cli {
namespace {

constexpr std::string_view kBash = R"sh(# bash completion of tern: source <(tern completion bash)
_tern() {
  local word=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]}
  if [ "$COMP_CWORD" = 1 ]; then
    mapfile -t COMPREPLY < <(compgen -W '@COMMANDS@' -- "$word")
  elif [[ $word == -* ]]; then
    local flags
    flags=$("${COMP_WORDS[0]}" "$command" --help 2>/dev/null | grep -oE -- '--[a-z][a-z0-9-]+' | sort -u)
    mapfile -t COMPREPLY < <(compgen -W "$flags" -- "$word")
  else
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
  fi
}
complete -o filenames -F _tern tern
)sh";
constexpr std::string_view kZsh = R"sh(#compdef tern
# zsh completion of tern: tern completion zsh > a file named _tern in a folder of $fpath
_tern() {
  if (( CURRENT == 2 )); then
    compadd -- @COMMANDS@
  elif [[ $words[CURRENT] == -* ]]; then
    compadd -- ${(f)"$($words[1] $words[2] --help 2>/dev/null | grep -oE -- '--[a-z][a-z0-9-]+' | sort -u)"}
  else
    _files
  fi
}
if [ "$funcstack[1]" = _tern ]; then _tern "$@"; else compdef _tern tern; fi
)sh";
constexpr std::string_view kFish =
    R"sh(# fish completion of tern: tern completion fish > ~/.config/fish/completions/tern.fish
complete -c tern -n __fish_use_subcommand -f -a '@COMMANDS@'
complete -c tern -n 'not __fish_use_subcommand; and string match -q -- "-*" (commandline -ct)' -f \
  -a '(set -l words (commandline -opc); $words[1] $words[2] --help 2>/dev/null | string match -ra -- "--[a-z][a-z0-9-]+" | sort -u)'
)sh";

}  // namespace

int run_completion(const std::vector<std::string>& args) {
  app::Options options("Prints what a shell needs to complete these commands and their flags", "tern completion");
  std::string shell;
  options.add_option("SHELL", shell, "bash, zsh or fish").required().one_of({"bash", "zsh", "fish"});
  if (const auto status = app::parse_options(options, args)) return *status;
  std::string text(shell == "bash" ? kBash : shell == "zsh" ? kZsh : kFish), names;
  for (const std::string_view name : command_names()) names += fmt::format("{}{}", names.empty() ? "" : " ", name);
  constexpr std::string_view kPlace = "@COMMANDS@";
  fmt::print("{}", text.replace(text.find(kPlace), kPlace.size(), names));
  return 0;
}

}  // namespace tern::cli
