// What commands that write a model folder share: signals, progress and exit codes.
#pragma once

#include <functional>
#include <string>

#include "base/error.h"
#include "model/files/folder_writer.h"

namespace tern::cli {

// Runs `write` with its options filled and prints the folder's name; the command's exit code.
int run_folder_command(const std::string& out, bool quiet,
                       const std::function<Status(const model::FolderWriterOptions&)>& write);

}  // namespace tern::cli
