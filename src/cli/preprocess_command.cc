// tern preprocess: pictures and videos as the server prepares them, for comparisons with other pipelines.
#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "app/flags/environment.h"
#include "app/hub/find_folder.h"
#include "app/options.h"
#include "app/report.h"
#include "cli/commands.h"
#include "content/media/service/media_service.h"
#include "image/codecs/decode.h"
#include "image/patches.h"
#include "json/json.h"
#include "video/video.h"

namespace tern::cli {
namespace {

struct Wanted {
  std::string model, out_dir, kwargs = "{}", dtype = "float32";
  std::vector<std::string> files;
  bool exif = true, hugging_face = false;
  int threads = 0;
};

Error failure(ErrorCode code, std::string message) { return make_error(code, std::move(message)); }

Expected<std::vector<std::byte>> read_local(std::string_view path, const fetch::FetchPolicy& policy) {
  std::ifstream in(std::string(path), std::ios::binary | std::ios::ate);
  if (!in) return failure(ErrorCode::kNotFound, "the file cannot be read");
  const auto size = static_cast<int64_t>(in.tellg());
  if (size < 0) return failure(ErrorCode::kIo, "the file cannot be read");
  if (static_cast<uint64_t>(size) > policy.max_bytes) {
    return failure(ErrorCode::kTooLarge, "the file has more bytes than the limit");
  }
  std::vector<std::byte> bytes(static_cast<size_t>(size));
  in.seekg(0);
  if (!in.read(reinterpret_cast<char*>(bytes.data()), size)) return failure(ErrorCode::kIo, "the file cannot be read");
  return bytes;
}

// By content: MP4 and its relatives (but for pictures in that container), Matroska and WebM, AVI. The server is told
// the kind by the request.
bool looks_like_video(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  char head[12] = {};
  in.read(head, sizeof(head));
  const std::string_view start(head, 4), second(head + 4, 4), third(head + 8, 4);
  if (second == "ftyp") return third.substr(0, 3) != "avi" && third.substr(0, 3) != "hei" && third != "mif1";
  // QuickTime files of old begin with one of their atoms.
  if (second == "moov" || second == "mdat" || second == "wide") return true;
  return start == "\x1a\x45\xdf\xa3" || (start == "RIFF" && third == "AVI ");
}

Expected<content::VisionProfile> profile_of(const Wanted& wanted) {
  TERN_ASSIGN_OR_RETURN(const app::Environment environment, app::Environment::from(app::Environment::of_process()));
  content::ProfileOptions options;
  TERN_ASSIGN_OR_RETURN(options.folder, app::obtain_folder({.name = wanted.model}, environment));
  TERN_ASSIGN_OR_RETURN(const json::Value kwargs, json::parse(wanted.kwargs));
  if (!kwargs.is_object()) return failure(ErrorCode::kInvalidArgument, "--mm-processor-kwargs must be an object");
  options.mm_processor_kwargs = kwargs.as_object();
  options.bf16 = wanted.dtype == "bfloat16";
  options.hugging_face = wanted.hugging_face;
  // The tokenizer only gives ids of placeholders, which are not needed here: loaded where config.json has none.
  auto profile = content::read_vision_profile(options, nullptr);
  if (!profile.ok() && content::has_tokenizer(options.folder)) {
    TERN_ASSIGN_OR_RETURN(const auto tokenizer, content::Tokenizer::load(options.folder));
    profile = content::read_vision_profile(options, tokenizer.get());
  }
  if (!profile.ok()) return std::move(profile).error();
  if (!profile->has_value()) {
    return failure(ErrorCode::kUnsupported, fmt::format("the model in {} takes no pictures", options.folder));
  }
  return std::move(**profile);
}

// NumPy's format 1.0: a header of a multiple of 64 bytes, then the rows. bfloat16 is written as its bits in uint16.
Status write_npy(const std::string& path, const content::PreparedMedia& media, size_t values, bool bf16) {
  const size_t value_bytes = bf16 ? 2 : 4, rows = media.patches->size() / (values * value_bytes);
  std::string header =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}, {}), }}", bf16 ? "<u2" : "<f4", rows, values);
  header.append(63 - (10 + header.size()) % 64, ' ').append("\n");
  std::string start("\x93NUMPY\x01\x00", 8);
  start += static_cast<char>(header.size() & 255);
  start += static_cast<char>(header.size() >> 8);
  std::ofstream out(path, std::ios::binary);
  out << start << header;
  out.write(reinterpret_cast<const char*>(media.patches->data()), static_cast<std::streamsize>(media.patches->size()));
  out.flush();
  if (!out) return failure(ErrorCode::kIo, fmt::format("{} cannot be written", path));
  return {};
}

// Keeps a few files on their way and prints in the order of the command line.
class Preprocessor {
 public:
  Preprocessor(const Wanted& wanted, content::VisionProfile profile)
      : wanted_(wanted), values_(image::patch_values(profile.layout)), merge_(profile.layout.merge) {
    options_.profile = std::move(profile);
    options_.threads = wanted.threads;
    options_.background = false;
    options_.apply_exif = wanted.exif;
    options_.processor_cache_gib = 0;
    options_.want_sha256 = true;
    options_.fetcher = read_local;
    std::error_code ignored;
    const std::string folder = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path().string();
    options_.video_helper = video::find_helper(folder);
    options_.font_file = video::find_font(folder);
  }

  // The number of files that failed.
  Expected<int> run() {
    if (!wanted_.out_dir.empty()) {
      std::error_code error;
      std::filesystem::create_directories(wanted_.out_dir, error);
      if (error) return failure(ErrorCode::kIo, fmt::format("{} cannot be made: {}", wanted_.out_dir, error.message()));
    }
    TERN_ASSIGN_OR_RETURN(const auto service, content::make_media_service(options_));
    constexpr size_t kOnTheirWay = 32;
    size_t begun = 0;
    for (size_t i = 0; i < wanted_.files.size(); i++) {
      for (; begun < wanted_.files.size() && begun < i + kOnTheirWay; begun++) begin(service.get(), begun);
      TERN_RETURN_IF_ERROR(print(wanted_.files[i], wait(i)));
    }
    return failed_;
  }

 private:
  using Result = Expected<content::PreparedMediaPtr>;

  void begin(content::MediaService* service, size_t i) {
    content::MediaPart part;
    part.url = wanted_.files[i];
    part.kind = looks_like_video(part.url) ? content::MediaKind::kVideo : content::MediaKind::kImage;
    const auto store = [this, i](Result result) {
      const std::lock_guard lock(mutex_);
      results_.emplace(i, std::move(result));
      ready_.notify_one();
    };
    const Status status = service->prepare({std::move(part)}, 0, [store](auto results) {
      store(results.ok() ? Result(std::move((*results)[0])) : Result(std::move(results).error()));
    });
    if (!status.ok()) store(status.error());
  }

  Result wait(size_t i) {
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [&] { return results_.contains(i); });
    return std::move(results_.extract(i).mapped());
  }

  Status print(const std::string& file, const Result& result) {
    json::Object line;
    line["file"] = file;
    if (!result.ok()) {
      failed_++;
      line["error"] = result.error().message;
    } else {
      const content::PreparedMedia& media = **result;
      const int frames = media.kind == content::MediaKind::kVideo ? frame_rows(media) : 1;
      line["kind"] = media.kind == content::MediaKind::kVideo ? "video" : "image";
      line["size"] = json::Array{media.width, media.height};
      line["grid"] = json::Array{frames, media.h * merge_, media.w * merge_};
      line["tokens"] = media.tokens;
      line["sha256"] = media.resized_sha256;
      if (!wanted_.out_dir.empty()) {
        const std::string path = patch_file(file);
        TERN_RETURN_IF_ERROR(write_npy(path, media, values_, wanted_.dtype == "bfloat16"));
        line["patches"] = path;
      }
    }
    fmt::print("{}\n", json::dump(line));
    if (std::fflush(stdout) != 0) return failure(ErrorCode::kIo, "the output cannot be written");
    return {};
  }

  static int frame_rows(const content::PreparedMedia& media) {
    int rows = 0;
    for (const content::MediaUnit& unit : media.units) rows += unit.t;
    return rows;
  }

  // Named after the file; numbered where two files of different folders have one name.
  std::string patch_file(const std::string& file) {
    const std::filesystem::path dir(wanted_.out_dir);
    const std::string name = std::filesystem::path(file).filename().string();
    std::string path = (dir / (name + ".npy")).string();
    for (int n = 2; !written_.insert(path).second; n++) path = (dir / fmt::format("{}.{}.npy", name, n)).string();
    return path;
  }

  const Wanted& wanted_;
  const size_t values_;
  const int merge_;
  content::MediaOptions options_;
  std::mutex mutex_;
  std::condition_variable ready_;
  std::map<size_t, Result> results_;
  std::set<std::string> written_;
  int failed_ = 0;
};

}  // namespace

int run_preprocess(const std::vector<std::string>& args) {
  app::Options options(
      "Prepares pictures and videos as the server does and prints, a JSON line per file, size and grid of "
      "the result, its tokens and the SHA-256 of the resized RGB bytes",
      "tern preprocess");
  Wanted wanted;
  options.add_option("--model,-m", wanted.model, "Folder with config.json and preprocessor_config.json").required();
  options.add_option("files", wanted.files, "Pictures and videos").required();
  options.add_option("--out", wanted.out_dir, "Folder for the patches, one .npy per file");
  options.add_option("--dtype", wanted.dtype, "Of the patches: float32, or bfloat16 (its bits as uint16)")
      .one_of({"float32", "bfloat16"});
  options.add_option("--mm-processor-kwargs", wanted.kwargs, "JSON, as for serve");
  options.add_flag("--exif,!--no-exif", wanted.exif,
                   "Turn pictures as their Exif orientation says, as the server does");
  options.add_flag("--hugging-face", wanted.hugging_face, "The rules of transformers where they differ");
  options.add_option("--threads", wanted.threads, "0: one per core").range(0, 1024);
  if (const auto status = app::parse_options(options, args)) return *status;
  auto profile = profile_of(wanted);
  if (!profile.ok()) return app::report(profile.error());
  const auto failed = Preprocessor(wanted, std::move(*profile)).run();
  if (!failed.ok()) return app::report(failed.error());
  return *failed == 0 ? 0 : app::kFailureExit;
}

}  // namespace tern::cli
