// Opening: container, stream, decoder, and the index of all frames.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>

#include "video/main/reader.h"

extern "C" {
#include <libavutil/display.h>
#include <libavutil/opt.h>
}

namespace tern::video {
namespace {

constexpr char kFormats[] = "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi";
constexpr char kCodecs[] = "h264,hevc,vp9,vp8,libdav1d,av1";
constexpr int kIoBuffer = 64 << 10;

int on_read(void* user, uint8_t* to, int size) {
  auto& input = *static_cast<MemoryFile*>(user);
  ssize_t n = 0;
  do {
    n = pread(input.fd, to, static_cast<size_t>(size), input.at);
  } while (n < 0 && errno == EINTR);
  if (n <= 0) return n == 0 ? AVERROR_EOF : AVERROR(EIO);
  input.at += n;
  return static_cast<int>(n);
}

int64_t on_seek(void* user, int64_t offset, int whence) {
  auto& input = *static_cast<MemoryFile*>(user);
  whence &= ~AVSEEK_FORCE;
  if (whence == AVSEEK_SIZE) return input.size;
  int64_t to = offset;
  if (whence == SEEK_CUR && __builtin_add_overflow(input.at, offset, &to)) return AVERROR(EINVAL);
  if (whence == SEEK_END && __builtin_add_overflow(input.size, offset, &to)) return AVERROR(EINVAL);
  if (to < 0) return AVERROR(EINVAL);
  return input.at = to;
}

// Playlists and references to other files lead nowhere.
int refuse_open(AVFormatContext*, AVIOContext**, const char*, int, AVDictionary**) { return AVERROR(EPERM); }

// By the first bytes, so that hostile bytes do not meet three hundred probing functions.
const char* format_of(const uint8_t (&head)[12]) {
  if (std::memcmp(head, "\x1A\x45\xDF\xA3", 4) == 0) return "matroska";
  if (std::memcmp(head, "RIFF", 4) == 0 && std::memcmp(head + 8, "AVI ", 4) == 0) return "avi";
  for (const char* box : {"ftyp", "moov", "mdat", "free", "skip", "wide"}) {
    if (std::memcmp(head + 4, box, 4) == 0) return "mov";
  }
  return nullptr;
}

}  // namespace

Verdict Reader::open_container(int fd) {
  uint8_t head[12];
  const int64_t size = lseek(fd, 0, SEEK_END);
  if (size < 0 || pread(fd, head, sizeof head, 0) != ssize_t{sizeof head}) return Verdict::kUnsupported;
  const char* name = format_of(head);
  const AVInputFormat* input_format = name != nullptr ? av_find_input_format(name) : nullptr;
  if (input_format == nullptr) return Verdict::kUnsupported;

  file_ = {fd, size, 0};
  auto* buffer = static_cast<uint8_t*>(av_malloc(kIoBuffer));
  AVFormatContext* format = avformat_alloc_context();
  packet_.reset(av_packet_alloc());
  frame_.reset(av_frame_alloc());
  if (buffer == nullptr || format == nullptr || !packet_ || !frame_) return Verdict::kTooLarge;
  io_.reset(avio_alloc_context(buffer, kIoBuffer, 0, &file_, on_read, nullptr, on_seek));
  if (!io_) return Verdict::kTooLarge;
  format->pb = io_.get();
  format->io_open = refuse_open;
  format->flags |= AVFMT_FLAG_CUSTOM_IO;
  format->max_streams = 100;
  av_opt_set(format, "format_whitelist", kFormats, 0);
  av_opt_set(format, "codec_whitelist", kCodecs, 0);
  av_opt_set(format, "protocol_whitelist", "none", 0);
  if (avformat_open_input(&format, nullptr, input_format, nullptr) < 0) return Verdict::kDamaged;  // frees it
  format_.reset(format);
  return Verdict::kGood;
}

Verdict Reader::open_decoder(const Setup& setup) {
  for (unsigned i = 0; i < format_->nb_streams; ++i) {
    const bool video = format_->streams[i]->codecpar->codec_type == AVMEDIA_TYPE_VIDEO;
    format_->streams[i]->discard = video ? AVDISCARD_DEFAULT : AVDISCARD_ALL;
  }
  // Some frames are decoded here already, with the same limits as later.
  std::vector<AVDictionary*> options(format_->nb_streams, nullptr);
  for (auto& option : options) {
    av_dict_set_int(&option, "max_pixels", setup.max_pixels, 0);
    av_dict_set(&option, "threads", "1", 0);
  }
  const size_t given = options.size();
  const int found = avformat_find_stream_info(format_.get(), options.data());
  for (size_t i = 0; i < given; ++i) av_dict_free(&options[i]);
  if (found < 0) return Verdict::kDamaged;
  const int best = av_find_best_stream(format_.get(), AVMEDIA_TYPE_VIDEO, -1, -1, nullptr, 0);
  if (best < 0) return Verdict::kNoVideo;
  for (unsigned i = 0; i < format_->nb_streams; ++i) {
    if (static_cast<int>(i) != best) format_->streams[i]->discard = AVDISCARD_ALL;
  }
  stream_ = format_->streams[best];
  const AVCodecParameters& parameters = *stream_->codecpar;
  codec_ = avcodec_find_decoder(parameters.codec_id);
  const char* names = kCodecs;
  const size_t length = codec_ != nullptr ? std::strlen(codec_->name) : 0;
  bool known = false;
  for (const char* at = names; at != nullptr && codec_ != nullptr; at = std::strchr(at, ',')) {
    at += *at == ',';
    known = known || (std::strncmp(at, codec_->name, length) == 0 && (at[length] == ',' || at[length] == '\0'));
  }
  if (!known) return Verdict::kUnsupported;
  width_ = parameters.width;
  height_ = parameters.height;
  if (width_ < 1 || height_ < 1) return Verdict::kDamaged;
  if (int64_t{width_} * height_ > setup.max_pixels) return Verdict::kTooLarge;
  decoder_.reset(avcodec_alloc_context3(codec_));
  if (!decoder_ || avcodec_parameters_to_context(decoder_.get(), &parameters) < 0) return Verdict::kDamaged;
  decoder_->thread_count = 1;
  decoder_->max_pixels = setup.max_pixels;
  decoder_->pkt_timebase = stream_->time_base;
  return avcodec_open2(decoder_.get(), codec_, nullptr) < 0 ? Verdict::kDamaged : Verdict::kGood;
}

// The original counts what comes out of the demuxer, whatever the header says.
Verdict Reader::index_packets(int64_t max_packets) {
  while (av_read_frame(format_.get(), packet_.get()) >= 0) {
    const AVPacket& packet = *packet_;
    const bool shown = packet.stream_index == stream_->index && (packet.flags & AV_PKT_FLAG_DISCARD) == 0;
    if (shown) frames_.push_back({packet.pts, packet.dts, (packet.flags & AV_PKT_FLAG_KEY) != 0});
    av_packet_unref(packet_.get());
    if (static_cast<int64_t>(frames_.size()) > max_packets) return Verdict::kTooLarge;
  }
  std::stable_sort(frames_.begin(), frames_.end(), [](const Frame& a, const Frame& b) { return a.pts < b.pts; });
  for (size_t i = 0; i < frames_.size(); ++i) {
    if (frames_[i].pts == AV_NOPTS_VALUE || (i > 0 && frames_[i].pts == frames_[i - 1].pts)) by_time_ = false;
  }
  needed_.assign(frames_.size(), false);
  return frames_.empty() ? Verdict::kNoVideo : Verdict::kGood;
}

double Reader::frame_rate() const {
  for (const AVRational rate : {stream_->avg_frame_rate, stream_->r_frame_rate}) {
    if (rate.num > 0 && rate.den > 0) return av_q2d(rate);
  }
  const double seconds = static_cast<double>(format_->duration) / AV_TIME_BASE;
  return seconds > 0 ? static_cast<double>(frames_.size()) / seconds : 0.0;
}

int Reader::rotation() const {
  const auto* matrix =
      reinterpret_cast<const int32_t*>(av_stream_get_side_data(stream_, AV_PKT_DATA_DISPLAYMATRIX, nullptr));
  if (matrix == nullptr) return 0;
  const double clockwise = -av_display_rotation_get(matrix);
  if (!std::isfinite(clockwise)) return 0;
  const int quarter = static_cast<int>(std::lround(clockwise / 90.0));
  return std::abs(clockwise - 90.0 * quarter) < 1.0 ? ((quarter % 4) + 4) % 4 * 90 : 0;
}

Facts Reader::open(int fd, const Setup& setup) {
  Facts facts;
  facts.verdict = open_container(fd);
  if (facts.verdict == Verdict::kGood) facts.verdict = open_decoder(setup);
  if (facts.verdict == Verdict::kGood) facts.verdict = index_packets(setup.max_packets);
  if (facts.verdict != Verdict::kGood) return facts;
  facts.frames = static_cast<int64_t>(frames_.size());
  facts.width = width_;
  facts.height = height_;
  facts.rotation = rotation();
  facts.average_fps = frame_rate();
  if (!(facts.average_fps > 0)) facts.verdict = Verdict::kDamaged;
  return facts;
}

}  // namespace tern::video
