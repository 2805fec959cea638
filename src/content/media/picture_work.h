// Inside the part: one picture to patches. While a JPEG is being decoded, idle threads of the pool make patches of the
// rows that are there, and the fingerprint follows them; without idle threads the decoding one does both in turns.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>

#include "content/media/prepare.h"
#include "media/decode.h"

namespace tern::content {

class PictureWork : public media::RowWatch {
 public:
  // width, height: of the picture as its header says and as it is resized from. Must go before the picture does.
  PictureWork(const PrepareContext& context, const PicturePlan& plan, int width, int height);

  void begin(const media::Image& image) override;
  void rows(int rows) override;
  // Of the decoded picture, turned but not converted.
  Hash128 fingerprint(const media::Image& image);
  // `rgb`: the picture in mode RGB.
  Expected<PreparedMediaPtr> finish(const media::Image& rgb, const Hash128& fingerprint, const Hash128& rules);

 private:
  Status make_ready(int width, int height);
  void write_strip(int strip);
  media::Band strip(int number) const;

  const PrepareContext context_;
  const PicturePlan plan_;
  const int width_, height_;
  int strips_ = 0, offered_ = 0;
  std::shared_ptr<PatchBuffers::Buffer> buffer_;
  std::optional<media::PatchMaker> maker_;
  const media::Image* image_ = nullptr;  // null: its rows are not told
  std::atomic<int> rows_{0};
  std::mutex fingerprint_mutex_;
  std::optional<media::Fingerprinter> fingerprinter_;
  std::mutex status_mutex_;
  Status status_;
  SharedWork work_;  // last: it uses all of the above until it ends
};

}  // namespace tern::content
