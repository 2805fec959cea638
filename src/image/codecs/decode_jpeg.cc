// jpeglib.h needs these two before it.
#include <cstddef>
#include <cstdio>

#include <jerror.h>
#include <jpeglib.h>

#include <algorithm>
#include <condition_variable>
#include <csetjmp>
#include <memory>
#include <mutex>

#include "image/codecs/decoders.h"

namespace tern::image {
namespace {

enum class Stop { kNone, kDamaged, kMemory, kScans };

struct ErrorManager : jpeg_error_mgr {
  std::jmp_buf jump;
  Stop stop = Stop::kNone;
};

// Counts passes while a progressive file is read; each costs time in proportion to the whole picture.
struct ScanCounter : jpeg_progress_mgr {
  int limit = 0;
};

[[noreturn]] void leave(j_common_ptr info, Stop stop) {
  auto* manager = static_cast<ErrorManager*>(info->err);
  manager->stop = stop;
  std::longjmp(manager->jump, 1);
}

void on_error(j_common_ptr info) {
  leave(info, info->err->msg_code == JERR_OUT_OF_MEMORY || info->err->msg_code == JERR_NO_BACKING_STORE
                  ? Stop::kMemory
                  : Stop::kDamaged);
}
void on_message(j_common_ptr) {}

void on_progress(j_common_ptr info) {
  const auto* decoder = reinterpret_cast<jpeg_decompress_struct*>(info);
  if (decoder->input_scan_number > static_cast<ScanCounter*>(info->progress)->limit) leave(info, Stop::kScans);
}

// The whole file is in the buffer, so a wish for more means that it is cut short: the library then suspends.
void no_source_work(j_decompress_ptr) {}
boolean no_more_input(j_decompress_ptr) { return FALSE; }
void skip_input(j_decompress_ptr info, long count) {
  if (count <= 0) return;
  const size_t step = std::min(static_cast<size_t>(count), info->src->bytes_in_buffer);
  info->src->next_input_byte += step;
  info->src->bytes_in_buffer -= step;
}

// Every method that calls the library sets its own jump target and holds no object with a destructor.
class Reader {
 public:
  explicit Reader(Bytes file) {
    info_.err = jpeg_std_error(&errors_);
    errors_.error_exit = on_error;
    errors_.output_message = on_message;
    source_.init_source = no_source_work;
    source_.fill_input_buffer = no_more_input;
    source_.skip_input_data = skip_input;
    source_.resync_to_restart = jpeg_resync_to_restart;
    source_.term_source = no_source_work;
    source_.next_input_byte = file.data();
    source_.bytes_in_buffer = file.size();
  }
  ~Reader() { jpeg_destroy_decompress(&info_); }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  // False when the file ends early or an error was met; see error().
  bool read_header() {
    if (setjmp(errors_.jump)) return false;
    jpeg_create_decompress(&info_);
    info_.src = &source_;
    int found = JPEG_HEADER_TABLES_ONLY;
    while (found == JPEG_HEADER_TABLES_ONLY) found = jpeg_read_header(&info_, FALSE);
    return found == JPEG_HEADER_OK;
  }

  bool start(J_COLOR_SPACE space, size_t memory, int scans) {
    if (setjmp(errors_.jump)) return false;
    info_.mem->max_memory_to_use = static_cast<long>(memory);
    info_.out_color_space = space;
    info_.dct_method = JDCT_ISLOW;
    info_.do_fancy_upsampling = TRUE;
    counter_.progress_monitor = on_progress;
    counter_.limit = scans;
    info_.progress = &counter_;
    return jpeg_start_decompress(&info_) != FALSE;
  }

  // Lets go of rows, whose pixels are not made.
  bool skip_rows(JDIMENSION rows) {
    if (setjmp(errors_.jump)) return false;
    return jpeg_skip_scanlines(&info_, rows) == rows;
  }

  // Rows up to `end`, where they stand in the picture.
  bool read_rows(uint8_t* rows, size_t row_bytes, JDIMENSION end) {
    if (setjmp(errors_.jump)) return false;
    while (info_.output_scanline < end) {
      JSAMPROW row = rows + row_bytes * info_.output_scanline;
      if (jpeg_read_scanlines(&info_, &row, 1) != 1) return false;
    }
    return true;
  }

  Error error() const {
    switch (errors_.stop) {
      case Stop::kNone:
        return error_truncated();
      case Stop::kDamaged:
        return error_damaged();
      case Stop::kMemory:
        return error_memory();
      case Stop::kScans:
        return error_scans();
    }
    return error_damaged();
  }
  const jpeg_decompress_struct& info() const { return info_; }
  // Huffman codes, all in one pass, with nothing wrong so far.
  bool plain() {
    return info_.progressive_mode == FALSE && info_.arith_code == FALSE && jpeg_has_multiple_scans(&info_) == FALSE &&
           errors_.num_warnings == 0;
  }

 private:
  jpeg_decompress_struct info_{};
  ErrorManager errors_{};
  jpeg_source_mgr source_{};
  ScanCounter counter_{};
};

// How a picture of so many components is read; false for other numbers.
bool read_as(int components, Mode* mode, J_COLOR_SPACE* space) {
  switch (components) {
    case 1:
      *mode = Mode::kL, *space = JCS_GRAYSCALE;
      return true;
    case 3:
      *mode = Mode::kRGB, *space = JCS_RGB;
      return true;
    case 4:
      *mode = Mode::kCMYK, *space = JCS_CMYK;
      return true;
    default:
      return false;
  }
}

// Everything about a file but its bytes.
struct Plan {
  Mode mode;
  J_COLOR_SPACE space;
  size_t memory;
  int scans;
};

// Rows up to `end`, in steps that are told.
bool read_and_tell(Reader& reader, Image* image, JDIMENSION end, RowWatch* watch) {
  constexpr JDIMENSION kStep = 16;  // rows of blocks with halved chroma
  while (reader.info().output_scanline < end) {
    const JDIMENSION at = reader.info().output_scanline, to = std::min(at + kStep, end);
    if (!reader.read_rows(image->data(), image->row_bytes(), to)) return false;
    if (watch != nullptr) watch->rows(static_cast<int>(at), static_cast<int>(to));
  }
  return true;
}

// The lower rows of a picture on another thread, which skips the upper ones: it reads their codes, as it must, but
// makes no pixels of them. Most of the time goes into codes, so that a quarter of the rows is half of what can be
// gained. Anything unusual makes it fail; the thread of the upper rows then reads on as if nothing had been tried.
class LowerPart : public std::enable_shared_from_this<LowerPart> {
 public:
  LowerPart(Bytes file, const Plan& plan, JDIMENSION begin, Image* image, RowWatch* watch)
      : file_(file), plan_(plan), begin_(begin), image_(image), watch_(watch) {}

  bool offer() {
    return watch_->share([self = shared_from_this()] { self->take(); });
  }
  // Of the other thread: true when the rows are there. What has not begun by now never will.
  bool join() {
    std::unique_lock lock(mutex_);
    if (state_ == State::kOffered) state_ = State::kEnded;
    ended_.wait(lock, [&] { return state_ == State::kEnded; });
    return made_;
  }
  bool begun() {
    const std::lock_guard lock(mutex_);
    return begun_;
  }

 private:
  enum class State { kOffered, kBegun, kEnded };
  void take() {
    {
      const std::lock_guard lock(mutex_);
      if (state_ != State::kOffered) return;
      state_ = State::kBegun;
      begun_ = true;
    }
    const bool made = decode();
    const std::lock_guard lock(mutex_);
    made_ = made;
    state_ = State::kEnded;
    ended_.notify_one();
  }
  bool decode() {
    Reader reader(file_);
    if (!reader.read_header() || !reader.start(plan_.space, plan_.memory, plan_.scans) || !reader.plain()) return false;
    if (!reader.skip_rows(begin_) || !reader.plain() || reader.info().output_scanline != begin_) return false;
    return read_and_tell(reader, image_, reader.info().output_height, watch_) && reader.plain();
  }

  const Bytes file_;
  const Plan plan_;
  const JDIMENSION begin_;
  Image* const image_;
  RowWatch* const watch_;
  std::mutex mutex_;
  std::condition_variable ended_;
  State state_ = State::kOffered;
  bool begun_ = false, made_ = false;
};

// All rows after start(). watch: may be null.
bool read_all(Reader& reader, Bytes file, const Plan& plan, Image* image, RowWatch* watch) {
  const JDIMENSION height = reader.info().output_height, unit = 2 * DCTSIZE;
  const JDIMENSION split = height * 3 / 4 / unit * unit;
  if (watch == nullptr || !reader.plain() || split < 2 * unit || height - split < 2 * unit) {
    return read_and_tell(reader, image, height, watch);
  }
  const auto lower = std::make_shared<LowerPart>(file, plan, split, image, watch);
  const bool offered = lower->offer();
  const bool upper = read_and_tell(reader, image, split, watch);
  if (offered) {
    const bool made = lower->join();
    if (made && upper && reader.plain()) return true;
    if (lower->begun()) {
      watch->forget();
      watch = nullptr;
    }
  }
  return upper && read_and_tell(reader, image, height, watch);
}

}  // namespace

Status decode_jpeg(Bytes file, const DecodeLimits& limits, Image* image, RowWatch* watch) {
  Reader reader(file);
  if (!reader.read_header()) return reader.error();
  const auto& info = reader.info();
  TERN_RETURN_IF_ERROR(check_size(info.image_width, info.image_height, limits));
  if (info.data_precision != 8) return error_variant();

  Plan plan;
  if (!read_as(info.num_components, &plan.mode, &plan.space)) return error_variant();
  const uint64_t pixels = static_cast<uint64_t>(info.image_width) * info.image_height;
  const uint64_t scans = std::min({limits.scans, limits.scan_pixels / pixels, uint64_t{INT32_MAX}});
  plan.scans = static_cast<int>(std::max<uint64_t>(scans, 1));
  // Coefficients of a progressive file are 2 bytes per sample, rounded up to whole blocks; the rest is row buffers.
  plan.memory = static_cast<size_t>(pixels) * info.num_components * 4 + (size_t{64} << 20);
  TERN_ASSIGN_OR_RETURN(*image, Image::make(plan.mode, info.image_width, info.image_height));
  if (!reader.start(plan.space, plan.memory, plan.scans)) return reader.error();
  if (plan.mode != Mode::kRGB) watch = nullptr;
  if (watch != nullptr) watch->begin(*image);
  if (!read_all(reader, file, plan, image, watch)) return reader.error();
  if (plan.mode == Mode::kCMYK) {
    uint8_t* p = image->data();
    for (size_t i = 0; i < image->size_bytes(); ++i) p[i] = static_cast<uint8_t>(255 - p[i]);
  }
  return {};
}

}  // namespace tern::image
