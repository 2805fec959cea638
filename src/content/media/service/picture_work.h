// Inside the part: one picture to patches. While a JPEG is being decoded, idle threads of the pool make patches of the
// rows that are there, and the fingerprint follows them; without idle threads the decoding one does both in turns.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/task.h"
#include "content/media/service/prepare.h"
#include "image/codecs/decode.h"

namespace tern::content {

class PictureWork : public image::RowWatch {
 public:
  // width, height: of the picture as its header says and as it is resized from. Must go before the picture does.
  PictureWork(const PrepareContext& context, const PicturePlan& plan, int width, int height);

  void begin(const image::Image& image) override;
  bool share(Task task) override;
  void rows(int begin, int end) override;
  void forget() override;
  // Of the decoded picture, turned but not converted.
  Hash128 fingerprint(const image::Image& image);
  // `rgb`: the picture in mode RGB.
  Expected<PreparedMediaPtr> finish(const image::Image& rgb, const Hash128& fingerprint, const Hash128& rules);

 private:
  Status make_ready(int width, int height);
  void write_strip(int strip);
  image::Band strip(int number) const;
  bool told(const image::Rows& wanted) const;
  int rows_from_top() const;

  const PrepareContext context_;
  const PicturePlan plan_;
  const int width_, height_;
  int strips_ = 0;
  std::shared_ptr<PatchBuffers::Buffer> buffer_;
  std::optional<image::PatchMaker> maker_;
  const image::Image* image_ = nullptr;  // null: its rows are not told
  mutable std::mutex rows_mutex_;
  image::Rows upper_, lower_;  // that are there; lower_ where another thread decodes the lower part
  std::vector<bool> offered_;  // strips
  std::mutex fingerprint_mutex_;
  std::optional<image::Fingerprinter> fingerprinter_;
  std::mutex status_mutex_;
  Status status_;
  SharedWork work_;  // last: it uses all of the above until it ends
};

}  // namespace tern::content
