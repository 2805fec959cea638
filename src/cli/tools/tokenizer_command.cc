// `tern tokenizer`: FastDeploy's command of that name. Its options may stand together; each prints a paragraph.
#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <fstream>

#include "app/options.h"
#include "app/report.h"
#include "cli/commands.h"
#include "cli/tools/model_folder.h"
#include "content/text/tokenizer.h"
#include "json/json.h"

namespace tern::cli {
namespace {

struct Wishes {
  std::string model, encode, decode, vocab_export;
  bool vocab_size = false, info = false;
  bool any() const { return !encode.empty() || !decode.empty() || !vocab_export.empty() || vocab_size || info; }
};

Error wrong(std::string what) { return make_error(ErrorCode::kInvalidArgument, std::move(what)); }

// "1, 2, 3", "1 2 3" or "[1,2,3]".
Expected<std::vector<int32_t>> parse_ids(std::string_view text, const content::Tokenizer& tokenizer) {
  std::vector<int32_t> ids;
  const char *at = text.data(), *const end = at + text.size();
  while (at < end) {
    if (std::string_view("[], \t").find(*at) != std::string_view::npos) {
      ++at;
      continue;
    }
    int32_t id = 0;
    const auto [next, error] = std::from_chars(at, end, id);
    if (error != std::errc()) return wrong(fmt::format("{} is no list of token ids", text));
    if (!tokenizer.has_id(id)) return wrong(fmt::format("the vocabulary has no id {}", id));
    ids.push_back(id);
    at = next;
  }
  return ids;
}

// FastDeploy's keys, and the folder.
json::Object info_of(const content::Tokenizer& tokenizer, const std::string& folder) {
  const content::SpecialText& special = tokenizer.special_text();
  json::Object named, ids;
  for (const auto& [name, text] : special.named) {
    named[name] = text;
    if (const auto id = tokenizer.token_to_id(text)) ids[name + "_id"] = *id;
  }
  json::Object out;
  out["vocab_size"] = tokenizer.vocab_size();
  out["model_name"] = folder;
  out["tokenizer_type"] = tokenizer.kind();
  const auto longest = tokenizer.model_max_length();
  out["model_max_length"] = longest ? json::Value(*longest) : json::Value(nullptr);
  out["special_tokens"] = named;
  out["special_token_ids"] = ids;
  return out;
}

// As Python's repr writes a text.
std::string repr(const std::string& text) {
  const char quote = text.find('\'') != std::string::npos && text.find('"') == std::string::npos ? '"' : '\'';
  std::string out(1, quote);
  for (const char c : text) {
    if (c == '\\' || c == quote)
      out += fmt::format("\\{}", c);
    else if (c == '\n' || c == '\r' || c == '\t')
      out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      out += fmt::format("\\x{:02x}", c);
    else
      out += c;
  }
  return out + quote;
}

// A line "ID<tab>TOKEN" for each.
int64_t write_lines(const content::Tokenizer& tokenizer, std::ofstream& out) {
  int64_t count = 0;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (!tokenizer.has_id(id)) continue;
    out << id << '\t' << repr(tokenizer.id_to_token(id)) << '\n';
    ++count;
  }
  return count;
}

// {"token": id, …} in the order of the ids.
int64_t write_json(const content::Tokenizer& tokenizer, std::ofstream& out) {
  std::string line = "{";
  int64_t count = 0;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (!tokenizer.has_id(id)) continue;
    line += count++ == 0 ? "\n  " : ",\n  ";
    json::append_quoted(line, tokenizer.id_to_token(id));
    line += fmt::format(": {}", id);
    out << line;
    line.clear();
  }
  out << "\n}\n";
  return count;
}

Status export_vocabulary(const content::Tokenizer& tokenizer, const std::string& path) {
  std::error_code ignored;
  const std::filesystem::path file(path);
  if (file.has_parent_path()) std::filesystem::create_directories(file.parent_path(), ignored);
  std::ofstream out(path, std::ios::binary);
  const int64_t count = file.extension() == ".json" ? write_json(tokenizer, out) : write_lines(tokenizer, out);
  out.close();
  if (!out) return make_error(ErrorCode::kIo, fmt::format("cannot write {}", path), "vocab-export");
  fmt::print("Vocabulary exported to: {}\nTotal tokens: {}\n", path, count);
  return {};
}

Status answer(const Wishes& wishes, const content::Tokenizer& tokenizer, const std::string& folder) {
  if (!wishes.encode.empty()) {
    TERN_ASSIGN_OR_RETURN(const auto ids, tokenizer.encode(wishes.encode, false));
    fmt::print("Input text: {}\nEncoded tokens: {}\n", wishes.encode, json::dump(json::Array(ids.begin(), ids.end())));
  }
  if (!wishes.decode.empty()) {
    TERN_ASSIGN_OR_RETURN(const auto ids, parse_ids(wishes.decode, tokenizer));
    fmt::print("Input tokens: {}\nDecoded text: {}\n", wishes.decode, tokenizer.decode(ids, false));
  }
  if (wishes.vocab_size) fmt::print("Vocabulary size: {}\n", tokenizer.vocab_size());
  if (wishes.info) fmt::print("{}\n", json::dump(info_of(tokenizer, folder)));
  if (!wishes.vocab_export.empty()) return export_vocabulary(tokenizer, wishes.vocab_export);
  return {};
}

Status run(const Wishes& wishes) {
  if (!wishes.any()) return wrong("one of --encode, --decode, --vocab-size, --info and --vocab-export is needed");
  TERN_ASSIGN_OR_RETURN(const std::string folder, model_folder(wishes.model));
  TERN_ASSIGN_OR_RETURN(const auto tokenizer, content::Tokenizer::load(folder));
  return answer(wishes, *tokenizer, folder);
}

// FastDeploy's short names have two letters, which the parser of options does not know.
std::vector<std::string> with_long_names(std::vector<std::string> args) {
  for (std::string& arg : args) {
    if (arg == "-vs") arg = "--vocab-size";
    if (arg == "-ve") arg = "--vocab-export";
    if (arg == "-mm") arg = "--enable-mm";
    if (arg == "--model-name-or-path" || arg == "--model_name_or_path") arg = "--model";
  }
  return args;
}

}  // namespace

int run_tokenizer(const std::vector<std::string>& args) {
  app::Options options("One text to token ids or back, and what the vocabulary is", "tern tokenizer");
  Wishes wishes;
  options.add_option("-m,--model", wishes.model, "Folder with the tokenizer files").required();
  options.add_option("-e,--encode", wishes.encode, "Text to turn into ids");
  options.add_option("-d,--decode", wishes.decode, "Ids to turn into text, such as \"[1, 2]\"");
  options.add_flag("--vocab-size", wishes.vocab_size, "How many ids there are (also -vs)");
  options.add_flag("-i,--info", wishes.info, "Kind, size and special tokens as JSON");
  options.add_option("--vocab-export", wishes.vocab_export,
                     "File for the vocabulary, JSON by the name .json, else a token a line (also -ve)");
  bool pictures = false;
  options.add_flag("--enable-mm", pictures, "No effect: the files are the same for models that see (also -mm)");
  if (const auto status = app::parse_options(options, with_long_names(args))) return *status;
  const Status status = run(wishes);
  return status.ok() ? 0 : app::report(status.error());
}

}  // namespace tern::cli
