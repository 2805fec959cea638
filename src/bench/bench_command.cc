#include <fmt/format.h>

#include "app/report.h"
#include "bench/bench.h"

namespace tern::bench {

int run_bench(const std::vector<std::string>& args) {
  constexpr std::string_view kUsage =
      "Usage: tern bench decode  --model DIR [--batch N] [--context N] [--tokens N] [--load-choices dummy] ...\n"
      "       tern bench prefill --model DIR [--tokens N] [--repeats N] [--load-choices dummy] ...\n"
      "       tern bench load    --model DIR [--load-choices dummy] [--device cuda] ...\n"
      "       tern bench serve   --url http://HOST:PORT [--concurrency N] [--requests N] ...\n"
      "       tern bench kernels [--device cuda] [--only GROUPS] [--match SHAPES] ...\n"
      "       tern bench ranks   [--ranks N] [--width N] ...\n\n"
      "decode and prefill run the engine without a server and compare with what this machine can do at most, measured "
      "in\n"
      "the same run. serve sends streamed requests to a server. kernels times single operations by shape, ranks what "
      "several GPUs exchange. COMMAND --help says more.\n";
  if (args.empty() || args[0] == "--help" || args[0] == "-h" || args[0] == "help") {
    fmt::print("{}", kUsage);
    return args.empty() ? app::kUsageExit : 0;
  }
  const std::vector<std::string> rest(args.begin() + 1, args.end());
  if (args[0] == "decode") return run_bench_decode(rest);
  if (args[0] == "prefill") return run_bench_prefill(rest);
  if (args[0] == "serve") return run_bench_serve(rest);
  if (args[0] == "load") return run_bench_load(rest);
  if (args[0] == "kernels") return run_bench_kernels(rest);
  if (args[0] == "ranks") return run_bench_ranks(rest);
  fmt::print(stderr, "tern: unknown benchmark \"{}\"; there are decode, prefill, load, serve, kernels and ranks\n",
             args[0]);
  return app::kUsageExit;
}

}  // namespace tern::bench
