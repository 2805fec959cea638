// Texts made from the tables: --help and docs/flags.md.
#pragma once

#include <string>
#include <string_view>

namespace tern::cli {

// The commands of `tern`, or FastDeploy's when the program was called so.
std::string command_help();
// Every flag by group with its default. A topic narrows it to the groups (by Tern's or FastDeploy's name) and flags
// that contain the word; "listgroup" lists the groups.
std::string flag_help(std::string_view topic);
// docs/flags.md.
std::string flags_markdown();
// The table of PaddleNLP's variables, for docs/paddlenlp.md.
std::string paddlenlp_markdown();

}  // namespace tern::cli
