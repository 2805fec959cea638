#include "app/cli.h"

int main(int argc, char** argv) { return tern::app::run(argc, argv); }
