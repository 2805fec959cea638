// A video file in memory: counted, indexed and decoded with FFmpeg's libraries.
#pragma once

extern "C" {
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libswscale/swscale.h>
}

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "video/protocol.h"

namespace tern::video {

struct AvFree {
  void operator()(AVFormatContext* c) const { avformat_close_input(&c); }
  void operator()(AVCodecContext* c) const { avcodec_free_context(&c); }
  void operator()(AVFrame* f) const { av_frame_free(&f); }
  void operator()(AVPacket* p) const { av_packet_free(&p); }
  void operator()(AVIOContext* c) const {
    av_freep(&c->buffer);
    avio_context_free(&c);
  }
  void operator()(SwsContext* c) const { sws_freeContext(c); }
};
template <class T>
using Av = std::unique_ptr<T, AvFree>;

struct MemoryFile {
  int fd = -1;
  int64_t size = 0, at = 0;
};

class Reader {
 public:
  Reader() = default;
  Reader(const Reader&) = delete;  // io_ points to file_
  Reader& operator=(const Reader&) = delete;
  // `fd` is read with pread. Facts::verdict says whether the rest may be used.
  Facts open(int fd, const Setup& setup);
  // Decodes the frames of `wanted` (ascending, distinct, within the file) and hands each to `take`, width * height * 3
  // bytes, with its place in `wanted` and the index that was decoded in its stead; nullptr and -1 when no neighbour in
  // reach could be decoded. Places come in any order.
  using Take = std::function<void(uint32_t entry, int64_t index, const uint8_t* rgb)>;
  void decode(const std::vector<int64_t>& wanted, const Take& take);

 private:
  struct Frame {
    int64_t pts, dts;
    bool key;
  };
  Verdict open_container(int fd);
  Verdict open_decoder(const Setup& setup);
  Verdict index_packets(int64_t max_packets);
  double frame_rate() const;
  int rotation() const;
  int64_t index_of(int64_t pts) const;
  int64_t key_before(int64_t index) const;
  void restart();
  bool seek_start();
  bool seek(int64_t index);
  // Reads on until a frame at or after `until` is there; its index, or -1 at the end. Frames that are neither in
  // needed_ nor referred to by others are not decoded.
  int64_t next(int64_t until);
  bool decode_at(int64_t index);
  bool to_rgb();
  void replace(int64_t index, uint32_t entry, const Take& take);

  MemoryFile file_;
  Av<AVIOContext> io_;
  Av<AVFormatContext> format_;
  Av<AVCodecContext> decoder_;
  Av<AVPacket> packet_;
  Av<AVFrame> frame_;
  Av<SwsContext> scaler_;
  const AVCodec* codec_ = nullptr;
  AVStream* stream_ = nullptr;
  std::vector<Frame> frames_;  // by presentation time
  std::vector<bool> needed_;   // by index
  bool by_time_ = true;        // every packet has its own time; otherwise frames are counted as they come
  bool draining_ = false;
  bool have_ = false;      // frame_ holds the frame of position_
  int64_t position_ = -1;  // the index that came out last
  int64_t first_ = -1;     // the index that came out first after the last seek
  int width_ = 0, height_ = 0;
  std::vector<uint8_t> rgb_;
};

}  // namespace tern::video
