// The small commands' options, over CLI11, which only options.cc includes: its headers cost each file 4 s. `serve` has
// its own parser: its flags come from a table with rules of their own (either dash in names, kinds of support, files),
// which CLI11 would only get in the way of.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace tern::app {

// One option of a command, for what is said about it after add_option().
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}
  Option& required();
  Option& capture_default_str();  // the help shows the variable's value of now
  template <typename T>           // int, uint64_t or double
  Option& range(T least, T most);
  Option& non_negative();
  Option& one_of(const std::vector<std::string>& values);
  Option& excludes(const Option& other);

 private:
  CLI::Option* option_;
};

// The options of one command. `names` are separated by commas: -x, --long, a bare word for what stands without a name,
// and with ! in front a flag that sets false. The variables are written by parse_options() and must live until then.
class Options {
 public:
  Options(const std::string& description, const std::string& command);
  ~Options();
  Options(const Options&) = delete;
  Options& operator=(const Options&) = delete;

  template <typename T>  // std::string, std::vector<std::string>, int, uint64_t or double
  Option add_option(const std::string& names, T& value, const std::string& description);
  Option add_flag(const std::string& names, bool& value, const std::string& description);
  // What is no option of the command goes there in its order, such as flags of `tern serve`; without it that is an
  // error.
  void pass_on(std::vector<std::string>& rest) { rest_ = &rest; }

 private:
  friend std::optional<int> parse_options(Options& options, const std::vector<std::string>& args);
  std::unique_ptr<CLI::App> app_;
  std::vector<std::string>* rest_ = nullptr;
};

// Parses `args`; in long names _ and - are the same. Nothing when the command may go on; otherwise help or one line
// about the mistake was printed and the value is the exit status.
std::optional<int> parse_options(Options& options, const std::vector<std::string>& args);

}  // namespace tern::app
