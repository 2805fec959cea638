#include "app/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>

#include "app/report.h"

namespace tern::app {

namespace {

// "--max_tokens=5" as "--max-tokens=5" where that is an option of the command.
std::string with_dashes(const CLI::App& app, const std::string& word) {
  if (!word.starts_with("--")) return word;
  const size_t end = std::min(word.find('='), word.size());
  std::string name = word.substr(0, end);
  std::replace(name.begin(), name.end(), '_', '-');
  return app.get_option_no_throw(name) != nullptr ? name + word.substr(end) : word;
}

}  // namespace

Option& Option::required() {
  option_->required();
  return *this;
}

Option& Option::capture_default_str() {
  option_->capture_default_str();
  return *this;
}

template <typename T>
Option& Option::range(T least, T most) {
  option_->check(CLI::Range(least, most));
  return *this;
}

template Option& Option::range(int, int);
template Option& Option::range(uint64_t, uint64_t);
template Option& Option::range(double, double);

Option& Option::non_negative() {
  // Not CLI::NonNegativeNumber: its message spells out the largest double.
  const auto check = [](const std::string& text) {
    double value = 0;
    if (!CLI::detail::lexical_cast(text, value)) return text + " is no number";
    return value >= 0 ? std::string() : text + " is less than 0";
  };
  option_->check(check, "NONNEGATIVE");
  return *this;
}

Option& Option::one_of(const std::vector<std::string>& values) {
  option_->check(CLI::IsMember(values));
  return *this;
}

Option& Option::excludes(const Option& other) {
  option_->excludes(other.option_);
  return *this;
}

Options::Options(const std::string& description, const std::string& command)
    : app_(std::make_unique<CLI::App>(description, command)) {}

Options::~Options() = default;

template <typename T>
Option Options::add_option(const std::string& names, T& value, const std::string& description) {
  return Option(app_->add_option(names, value, description));
}

template Option Options::add_option(const std::string&, std::string&, const std::string&);
template Option Options::add_option(const std::string&, std::vector<std::string>&, const std::string&);
template Option Options::add_option(const std::string&, int&, const std::string&);
template Option Options::add_option(const std::string&, uint64_t&, const std::string&);
template Option Options::add_option(const std::string&, double&, const std::string&);

Option Options::add_flag(const std::string& names, bool& value, const std::string& description) {
  return Option(app_->add_flag(names, value, description));
}

std::optional<int> parse_options(Options& options, const std::vector<std::string>& args) {
  // CLI11 takes the words from the back and reports by exceptions; they end here.
  std::vector<std::string> reversed(args.rbegin(), args.rend());
  for (std::string& word : reversed) word = with_dashes(*options.app_, word);
  options.app_->allow_extras(options.rest_ != nullptr);
  try {
    options.app_->parse(reversed);
    if (options.rest_ != nullptr) *options.rest_ = options.app_->remaining();
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", options.app_->help());
    return 0;
  } catch (const CLI::ParseError& error) {
    std::string line = error.what();
    std::replace(line.begin(), line.end(), '\n', ' ');
    fmt::print(stderr, "tern: {} (--help lists the options)\n", line);
    return kUsageExit;
  }
  return std::nullopt;
}

}  // namespace tern::app
