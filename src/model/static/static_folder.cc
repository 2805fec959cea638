#include "model/static/static_folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <set>

#include "model/paddle/params_file.h"

namespace tern::model {
namespace fs = std::filesystem;
namespace {

constexpr const char* kParams = "model.pdiparams";
constexpr const char* kPir = "model.json";
constexpr const char* kDesc = "model.pdmodel";
constexpr int kMaxRanks = 1024;

bool is_file(const fs::path& path) {
  std::error_code ec;
  return fs::is_regular_file(path, ec);
}

// Numbers of the folders rank_<r> that hold parameters.
std::set<int> rank_numbers(const std::string& folder) {
  std::set<int> found;
  std::error_code ec;
  for (const auto& entry : fs::directory_iterator(folder, ec)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("rank_")) continue;
    int number = -1;
    const auto [end, error] = std::from_chars(name.data() + 5, name.data() + name.size(), number);
    if (error == std::errc() && end == name.data() + name.size() && number >= 0 && number < kMaxRanks &&
        is_file(entry.path() / kParams))
      found.insert(number);
  }
  return found;
}

Error in_file(const std::string& path, const Error& error) {
  return make_error(error.code, fmt::format("{}: {}", path, error.message));
}

// What to take instead of an export that is not read.
std::string original_of(const json::Object& config) {
  const auto name = json::get_string(config, "_name_or_path");
  if (!name.ok() || !*name || (*name)->empty()) return "the original checkpoint (safetensors) of the model";
  return fmt::format("the original checkpoint (safetensors), {}", **name);
}

// The folders of all ranks, in order.
Expected<std::vector<std::string>> rank_folders(const std::string& folder) {
  const std::set<int> numbers = rank_numbers(folder);
  if (numbers.empty()) return std::vector{folder};
  std::vector<std::string> out;
  for (int i = 0; i <= *numbers.rbegin(); ++i) {
    out.push_back(fmt::format("{}/rank_{}", folder, i));
    if (!numbers.contains(i))
      return make_error(ErrorCode::kNotFound, fmt::format("{}/{} is not there, and all ranks are needed (is this one "
                                                          "node's part of an export for several?)",
                                                          out.back(), kParams));
  }
  return out;
}

class Opener {
 public:
  explicit Opener(StaticFolder& folder) : folder_(folder) {}

  Status rank(const std::string& path) {
    TERN_ASSIGN_OR_RETURN(const StaticProgram program, read_program(path));
    const std::string name = path + "/" + kParams;
    TERN_ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::open(name));
    auto file = std::make_unique<MappedFile>(std::move(mapped));
    auto stored = parse_pdiparams({file->data(), file->size()});
    TERN_RETURN_IF_ERROR(file->check());
    if (!stored.ok()) return in_file(name, stored.error());
    if (stored->size() != program.parameters.size())
      return make_error(ErrorCode::kCorrupt, fmt::format("{} holds {} tensors, but its program has {} parameters", name,
                                                         stored->size(), program.parameters.size()));
    for (size_t i = 0; i < stored->size(); ++i)
      TERN_RETURN_IF_ERROR(parameter(name, *file, program.parameters[i], (*stored)[i]));
    file->release(file->data(), file->size());
    folder_.files.push_back(std::move(file));
    return program_fits(path, program);
  }

 private:
  Expected<StaticProgram> read_program(const std::string& path) {
    for (const auto& [name, parse] : {std::pair{kPir, &parse_pir_program}, std::pair{kDesc, &parse_program_desc}}) {
      const std::string full = path + "/" + name;
      if (!is_file(full)) continue;
      TERN_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(full));
      auto program = parse({file.data(), file.size()});
      TERN_RETURN_IF_ERROR(file.check());
      if (!program.ok()) return in_file(full, program.error());
      return program;
    }
    return make_error(ErrorCode::kNotFound, fmt::format("{} has {} but neither {} nor {}, which name its tensors", path,
                                                        kParams, kPir, kDesc));
  }

  Status parameter(const std::string& path, const MappedFile& file, const ProgramParameter& p,
                   const StoredParameter& stored) {
    if (p.tensor != stored.tensor)
      return make_error(ErrorCode::kCorrupt,
                        fmt::format("{} has {} {} where its program has {}, {} {}", path,
                                    file_type_name(stored.tensor.type), shape_text(stored.tensor.dims), p.name,
                                    file_type_name(p.tensor.type), shape_text(p.tensor.dims)));
    StaticParameter& all = folder_.parameters[p.name];
    if (all.ranks.size() != folder_.files.size())
      return make_error(ErrorCode::kCorrupt, fmt::format("{} has {}, which ranks before it do not have", path, p.name));
    if (all.ranks.empty()) {
      all.uses = p;
    } else if (all.uses.tensor != p.tensor) {
      return make_error(ErrorCode::kCorrupt,
                        fmt::format("{} has {} as {} {}, rank 0 as {} {}", path, p.name, file_type_name(p.tensor.type),
                                    shape_text(p.tensor.dims), file_type_name(all.type()), shape_text(all.dims())));
    }
    all.ranks.push_back({&file, file.data() + stored.begin, stored.tensor.type, stored.tensor.dims,
                         static_cast<size_t>(stored.end - stored.begin)});
    return {};
  }

  // All parameters are there, and codes are laid out alike.
  Status program_fits(const std::string& path, const StaticProgram& program) {
    for (const auto& [name, p] : folder_.parameters)
      if (p.ranks.size() != folder_.files.size())
        return make_error(ErrorCode::kCorrupt, fmt::format("{} has no {}, which rank 0 has", path, name));
    if (folder_.files.size() > 1 && program.arch != folder_.arch)
      return make_error(ErrorCode::kUnsupported,
                        fmt::format("{}: its weights are laid out for another architecture than rank 0's", path));
    folder_.arch = program.arch;
    return {};
  }

  StaticFolder& folder_;
};

}  // namespace

bool has_static_weights(const std::string& folder) {
  if (rank_numbers(folder).empty() && !is_file(fs::path(folder) / kParams)) return false;
  std::error_code ec;
  for (const auto& entry : fs::directory_iterator(folder, ec)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("model") && (name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json")))
      return false;
  }
  return true;
}

Expected<StaticFolder> StaticFolder::open(const std::string& folder, const json::Object& config) {
  StaticFolder out;
  TERN_ASSIGN_OR_RETURN(const std::vector<std::string> paths, rank_folders(folder));
  TERN_ASSIGN_OR_RETURN(const std::optional<int64_t> degree, json::get_int(config, "tensor_parallel_degree"));
  if (degree.value_or(1) > static_cast<int64_t>(paths.size()))
    return make_error(
        ErrorCode::kNotFound,
        fmt::format("{}: config.json says that there are {} ranks, and {} is there; all of them are needed", folder,
                    *degree, paths.size()));
  for (const std::string& path : paths) TERN_RETURN_IF_ERROR(Opener(out).rank(path));
  std::vector<std::string_view> names;
  for (const auto& [name, p] : out.parameters) names.push_back(name);
  TERN_ASSIGN_OR_RETURN(out.names, check_static_names(names, original_of(config)));
  return out;
}

const StaticParameter* StaticFolder::find(int layer, std::string_view leaf) const {
  const auto found = parameters.find(fmt::format("fuse{}.{}.{}", names.family, layer, leaf));
  return found == parameters.end() ? nullptr : &found->second;
}

Status StaticFolder::check() const {
  for (const auto& file : files) TERN_RETURN_IF_ERROR(file->check());
  return {};
}

}  // namespace tern::model
