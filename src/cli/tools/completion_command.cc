// `tern completion`: what a shell needs to complete commands and flags. The flags come from the program's own --help,
// so that they are those of the program that is installed.
#include <fmt/format.h>

#include <string>

#include "app/options.h"
#include "bench/bench.h"
#include "cli/commands.h"

namespace tern::cli {
namespace {

constexpr std::string_view kBash = R"sh(# bash completion of tern: source <(tern completion bash)
_tern() {
  local word=${COMP_WORDS[COMP_CWORD]} command=("${COMP_WORDS[1]}")
  if [ "${command[0]}" = bench ]; then command+=("${COMP_WORDS[2]}"); fi
  if [ "$COMP_CWORD" = 1 ]; then
    mapfile -t COMPREPLY < <(compgen -W '@COMMANDS@' -- "$word")
  elif [ "$COMP_CWORD" = 2 ] && [ "${command[0]}" = bench ]; then
    mapfile -t COMPREPLY < <(compgen -W '@BENCHMARKS@' -- "$word")
  elif [[ $word == -* ]]; then
    local flags
    flags=$("${COMP_WORDS[0]}" "${command[@]}" --help 2>/dev/null | grep -oE -- '--[a-z][a-z0-9-]+' | sort -u)
    mapfile -t COMPREPLY < <(compgen -W "$flags" -- "$word")
  else
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
  fi
}
complete -o filenames -F _tern tern fastdeploy
)sh";
constexpr std::string_view kZsh = R"sh(#compdef tern fastdeploy
# zsh completion of tern: tern completion zsh > a file named _tern in a folder of $fpath
_tern() {
  local -a command=($words[2])
  if [[ $words[2] == bench ]]; then command+=($words[3]); fi
  if (( CURRENT == 2 )); then
    compadd -- @COMMANDS@
  elif (( CURRENT == 3 )) && [[ $words[2] == bench ]]; then
    compadd -- @BENCHMARKS@
  elif [[ $words[CURRENT] == -* ]]; then
    compadd -- ${(f)"$($words[1] $command --help 2>/dev/null | grep -oE -- '--[a-z][a-z0-9-]+' | sort -u)"}
  else
    _files
  fi
}
if [ "$funcstack[1]" = _tern ]; then _tern "$@"; else compdef _tern tern fastdeploy; fi
)sh";
constexpr std::string_view kFish =
    R"sh(# fish completion of tern: tern completion fish > ~/.config/fish/completions/tern.fish
for program in tern fastdeploy
  complete -c $program -n __fish_use_subcommand -f -a '@COMMANDS@'
  complete -c $program -n 'string match -q -- bench (commandline -opc)[-1]' -f -a '@BENCHMARKS@'
  complete -c $program -n 'not __fish_use_subcommand; and string match -q -- "-*" (commandline -ct)' -f \
    -a '(set -l words (commandline -opc); set -l command $words[2]; test "$command" = bench; and set -a command $words[3]; $words[1] $command --help 2>/dev/null | string match -ra -- "--[a-z][a-z0-9-]+" | sort -u)'
end
)sh";

void fill(std::string& text, std::string_view place, const std::string& names) {
  for (size_t at = 0; (at = text.find(place, at)) != std::string::npos;) text.replace(at, place.size(), names);
}

}  // namespace

int run_completion(const std::vector<std::string>& args) {
  app::Options options("Prints what a shell needs to complete these commands and their flags", "tern completion");
  std::string shell;
  options.add_option("SHELL", shell, "bash, zsh or fish").required().one_of({"bash", "zsh", "fish"});
  if (const auto status = app::parse_options(options, args)) return *status;
  std::string text(shell == "bash" ? kBash : shell == "zsh" ? kZsh : kFish), names, benchmarks;
  for (const std::string_view name : command_names()) names += fmt::format("{}{}", names.empty() ? "" : " ", name);
  for (const bench::Benchmark& benchmark : bench::benchmarks())
    benchmarks += fmt::format("{}{}", benchmarks.empty() ? "" : " ", benchmark.name);
  fill(text, "@COMMANDS@", names);
  fill(text, "@BENCHMARKS@", benchmarks);
  fmt::print("{}", text);
  return 0;
}

}  // namespace tern::cli
