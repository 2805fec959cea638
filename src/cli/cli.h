// The command line: `tern SUBCOMMAND ...`; without one, FastDeploy's api_server flags.
#pragma once

namespace tern::cli {
int run(int argc, char** argv);
}
