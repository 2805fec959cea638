// Decoding single frames by index.
#include "video/main/reader.h"

#include <algorithm>

extern "C" {
#include <libavutil/imgutils.h>
}

namespace tern::video {

int64_t Reader::index_of(int64_t pts) const {
  const auto it =
      std::lower_bound(frames_.begin(), frames_.end(), pts, [](const Frame& f, int64_t t) { return f.pts < t; });
  return it != frames_.end() && it->pts == pts ? it - frames_.begin() : -1;
}

int64_t Reader::key_before(int64_t index) const {
  while (index > 0 && !frames_[static_cast<size_t>(index)].key) --index;
  return index;
}

void Reader::restart() {
  avcodec_flush_buffers(decoder_.get());
  draining_ = have_ = false;
  position_ = first_ = -1;
}

bool Reader::seek_start() {
  restart();
  for (const int64_t time : {std::min(frames_[0].pts, frames_[0].dts), frames_[0].pts, int64_t{0}}) {
    if (time != AV_NOPTS_VALUE && av_seek_frame(format_.get(), stream_->index, time, AVSEEK_FLAG_BACKWARD) >= 0)
      return true;
  }
  return avformat_seek_file(format_.get(), -1, INT64_MIN, INT64_MIN, INT64_MAX, AVSEEK_FLAG_BYTE) >= 0;
}

// To a place from which `index` can be decoded, or to the start.
bool Reader::seek(int64_t index) {
  const int64_t key = by_time_ ? key_before(index) : 0;
  if (key == 0) return seek_start();
  restart();
  const int64_t time = frames_[static_cast<size_t>(key)].pts;
  return av_seek_frame(format_.get(), stream_->index, time, AVSEEK_FLAG_BACKWARD) >= 0 || seek_start();
}

int64_t Reader::next(int64_t until) {
  have_ = false;
  while (true) {
    const int got = avcodec_receive_frame(decoder_.get(), frame_.get());
    if (got >= 0) {
      const int64_t time = frame_->pts != AV_NOPTS_VALUE ? frame_->pts : frame_->best_effort_timestamp;
      const int64_t index = by_time_ ? index_of(time) : position_ + 1;
      if (index < 0) continue;
      position_ = index;
      if (first_ < 0) first_ = index;
      have_ = index >= until;
      if (have_) return index;
      continue;
    }
    if (got != AVERROR(EAGAIN) || draining_) return -1;
    if (av_read_frame(format_.get(), packet_.get()) < 0) {
      draining_ = true;
      avcodec_send_packet(decoder_.get(), nullptr);
      continue;
    }
    if (packet_->stream_index == stream_->index) {
      const int64_t index = by_time_ ? index_of(packet_->pts) : -1;
      const bool skip = index >= 0 && !needed_[static_cast<size_t>(index)];
      decoder_->skip_frame = skip ? AVDISCARD_NONREF : AVDISCARD_DEFAULT;
      avcodec_send_packet(decoder_.get(), packet_.get());  // a damaged packet shows as a missing frame
    }
    av_packet_unref(packet_.get());
  }
}

// Leaves the frame in frame_. False when the file does not give it.
bool Reader::decode_at(int64_t index) {
  const bool planned = needed_[static_cast<size_t>(index)];  // otherwise it may have been left out on the way
  needed_[static_cast<size_t>(index)] = true;
  if (have_ && position_ == index) return true;
  const bool on_the_way = planned && position_ >= 0 && position_ < index && !draining_;
  if (on_the_way && (!by_time_ || key_before(index) <= position_)) return next(index) == index;
  if (!seek(index)) return false;
  if (next(index) == index) return true;
  // The seek may have gone too far (a wrong key flag, an index that lies): once more, from the start.
  const bool too_far = by_time_ && key_before(index) > 0 && (first_ < 0 || first_ > index);
  return too_far && seek_start() && next(index) == index;
}

bool Reader::to_rgb() {
  const AVFrame& frame = *frame_;
  const auto format = static_cast<AVPixelFormat>(frame.format);
  SwsContext* context = sws_getCachedContext(scaler_.release(), frame.width, frame.height, format, width_, height_,
                                             AV_PIX_FMT_RGB24, SWS_BICUBIC, nullptr, nullptr, nullptr);
  scaler_.reset(context);
  if (context == nullptr) return false;
  const int* matrix = sws_getCoefficients(frame.colorspace);
  const int* output = sws_getCoefficients(SWS_CS_DEFAULT);
  sws_setColorspaceDetails(context, matrix, frame.color_range == AVCOL_RANGE_JPEG, output, 1, 0, 1 << 16, 1 << 16);
  // swscale's vector code writes past the end of a row; the buffer of the last row has room for it.
  rgb_.resize(static_cast<size_t>(width_) * height_ * 3 + 64);
  uint8_t* to[4] = {rgb_.data(), nullptr, nullptr, nullptr};
  const int stride[4] = {width_ * 3, 0, 0, 0};
  return sws_scale(context, frame.data, frame.linesize, 0, frame.height, to, stride) == height_;
}

// The neighbour nearest to a broken frame, earlier ones first.
void Reader::replace(int64_t index, uint32_t entry, const Take& take) {
  const auto count = static_cast<int64_t>(frames_.size());
  const int64_t tolerance = index == 0 || index == count - 1 ? 20 : 10;
  for (int64_t away = 1; away < tolerance; ++away) {
    for (const int64_t other : {index - away, index + away}) {
      if (other < 0 || other >= count || !decode_at(other) || !to_rgb()) continue;
      take(entry, other, rgb_.data());
      return;
    }
  }
  take(entry, -1, nullptr);
}

void Reader::decode(const std::vector<int64_t>& wanted, const Take& take) {
  for (const int64_t index : wanted) needed_[static_cast<size_t>(index)] = true;
  restart();
  std::vector<uint32_t> missing;
  for (uint32_t entry = 0; entry < wanted.size(); ++entry) {
    if (decode_at(wanted[entry]) && to_rgb()) {
      take(entry, wanted[entry], rgb_.data());
    } else {
      missing.push_back(entry);
    }
  }
  for (const uint32_t entry : missing) replace(wanted[entry], entry, take);
}

}  // namespace tern::video
