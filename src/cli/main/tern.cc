#include "cli/cli.h"

int main(int argc, char** argv) { return tern::cli::run(argc, argv); }
