// Many requests at once: who waits, who is refused, and that nobody holds up another.
#include "content/media/tests/media_service_support.h"

namespace tern::content {
namespace {

using testing::HasSubstr;

TEST_F(MediaServiceTest, RequestsWaitWhilePatchesAreHeldAndGoOnWhenTheyAreReleased) {
  Results first = get(*make(options()), {image("scene.png")});
  const size_t patches = (*first)[0]->bytes;
  MediaOptions limited = options();
  // Room for the patches of one request and the work on another picture, not for two requests.
  limited.request_bytes = limited.total_bytes = patches + (size_t{3} << 20);
  limited.total_bytes = limited.request_bytes + patches / 2;
  const auto service = make(std::move(limited));
  Results held = get(*service, {image("scene.png"), image("scene_420.jpg")});
  ASSERT_TRUE(held.ok()) << held.error().message;
  EXPECT_GT(service->stats().bytes_in_use, 0u);
  std::vector<std::future<Results>> more;
  for (int i = 0; i < 5; i++) more.push_back(begin(*service, {image("scene.png"), image("scene_420.jpg")}));
  held = make_error(ErrorCode::kInternal, "");  // lets go
  for (auto& next : more) EXPECT_TRUE(next.get().ok());
  EXPECT_EQ(service->stats().bytes_in_use, 0u);
  EXPECT_EQ(service->stats().waiting, 0u);
}

TEST_F(MediaServiceTest, TooManyWaitingRequestsAreRefusedAtOnce) {
  MediaOptions limited = options();
  limited.max_waiting = 3;
  const auto service = make(std::move(limited));
  std::vector<std::future<Results>> waiting;
  for (int i = 0; i < 3; i++) waiting.push_back(begin(*service, {image("gate:scene.png")}));
  const Results refused = get(*service, {image("scene.png")});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
  hosts_->open();
  for (auto& w : waiting) EXPECT_TRUE(w.get().ok());
  EXPECT_TRUE(get(*service, {image("scene.png")}).ok());
}

TEST_F(MediaServiceTest, ASlowHostHoldsUpNobodyElse) {
  const auto service = make(options());
  std::vector<std::future<Results>> slow;
  for (int i = 0; i < 3; i++) slow.push_back(begin(*service, {image("gate:scene.png")}));
  hosts_->wait_for(3);
  for (int i = 0; i < 20; i++) EXPECT_TRUE(get(*service, {image("scene_420.jpg")}).ok());
  hosts_->open();
  for (auto& s : slow) EXPECT_TRUE(s.get().ok());
}

// Slow hosts, in numbers beyond all threads and all bytes that their files might have: data: URLs do not notice, and
// another key's URLs find threads.
TEST_F(MediaServiceTest, SlowUrlsOfOneKeyHoldUpNobodyElse) {
  MediaOptions own = options();
  own.fetcher = [hosts = hosts_](std::string_view url, const fetch::FetchPolicy& policy) {
    return url.starts_with("data:") ? fetch::fetch(url, policy) : hosts->fetch(url, policy);
  };
  own.decode.bytes = own.request_file_bytes = own.total_file_bytes = size_t{1} << 20;
  const auto service = make(std::move(own));
  std::vector<std::future<Results>> slow;
  for (int i = 0; i < 40; i++) slow.push_back(begin(*service, {image("gate:scene.png")}, 1));
  hosts_->wait_for(2);
  const std::string data = "data:image/png;base64," + base64(file_bytes("scene.png"));
  for (const uint64_t owner : {0, 1, 2}) EXPECT_TRUE(get(*service, {image(data)}, owner).ok()) << owner;
  for (int i = 0; i < 5; i++) EXPECT_TRUE(get(*service, {image("scene_420.jpg")}, 2).ok());
  hosts_->open();
  for (auto& s : slow) EXPECT_TRUE(s.get().ok());
  EXPECT_EQ(service->stats().bytes_in_use, 0u);
}

// Bytes count as they come: for the request (its own fault, 400) and for all (429), and are given back.
TEST_F(MediaServiceTest, FetchedBytesAreCountedAsTheyCome) {
  MediaOptions own = options();
  own.request_file_bytes = 100000;
  own.total_file_bytes = 150000;
  std::promise<void> open, held;
  const auto gate = open.get_future().share();
  own.fetcher = [&](std::string_view url, const fetch::FetchPolicy& policy) -> Expected<std::vector<std::byte>> {
    const auto count = static_cast<int64_t>(std::stoll(std::string(url.substr(5))));
    for (int64_t done = 0; done < count; done += 1000) {
      if (!policy.count(1000)) {
        if (done > 0) policy.count(-done);
        return fetch::no_room();
      }
    }
    if (url.starts_with("hold:")) {
      held.set_value();
      gate.wait();
    }
    auto file = file_bytes("scene.png");
    file.resize(static_cast<size_t>(count));
    return file;
  };
  const auto service = make(std::move(own));
  auto first = begin(*service, {image("hold:80000")});
  held.get_future().wait();
  EXPECT_EQ(service->stats().bytes_in_use, 80000u);
  const Results all = get(*service, {image("pass:90000")});
  ASSERT_FALSE(all.ok());
  EXPECT_EQ(all.error().code, ErrorCode::kResourceExhausted);
  const Results alone = get(*service, {image("pass:110000")});
  ASSERT_FALSE(alone.ok());
  EXPECT_TRUE(get(*service, {image("pass:60000")}).ok());
  open.set_value();
  EXPECT_TRUE(first.get().ok());
  const Results request = get(*service, {image("pass:60000", "a"), image("pass:60000", "b")});
  ASSERT_FALSE(request.ok());
  EXPECT_EQ(request.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(request.error().message, HasSubstr("more bytes than the limit"));
  EXPECT_TRUE(get(*service, {image("pass:90000")}).ok());
  EXPECT_EQ(service->stats().bytes_in_use, 0u);
}

TEST_F(MediaServiceTest, AKeyHasThreeQuartersOfTheWaitingPlaces) {
  MediaOptions limited = options();
  limited.max_waiting = 8;
  const auto service = make(std::move(limited));
  std::vector<std::future<Results>> waiting;
  for (int i = 0; i < 6; i++) waiting.push_back(begin(*service, {image("gate:scene.png")}, 1));
  const Results refused = get(*service, {image("scene.png")}, 1);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
  EXPECT_TRUE(get(*service, {image("scene.png")}, 2).ok());
  hosts_->open();
  for (auto& w : waiting) EXPECT_TRUE(w.get().ok());
}

TEST_F(MediaServiceTest, AHundredPicturesDoNotHoldUpASingleOne) {
  MediaOptions single = options();
  single.threads = 1;
  const auto service = make(std::move(single));
  std::atomic<bool> many_done{false}, many_first{false};
  std::promise<void> all;
  std::vector<MediaPart> many(100, image("scene_444.jpg"));
  ASSERT_TRUE(service
                  ->prepare(std::move(many), 0,
                            [&](Results results) {
                              EXPECT_TRUE(results.ok());
                              many_done = true;
                              all.set_value();
                            })
                  .ok());
  hosts_->wait_for(50);
  auto one = begin(*service, {image("scene.png")});
  EXPECT_TRUE(one.get().ok());
  many_first = many_done.load();
  EXPECT_FALSE(many_first);
  all.get_future().wait();
}

TEST_F(MediaServiceTest, CancelledRequestsEndEarly) {
  const auto service = make(options());
  auto cancelled = std::make_shared<std::atomic<bool>>(false);
  auto answer = begin(*service, {image("gate:scene.png"), image("gate:scene_420.jpg")}, 0, cancelled);
  hosts_->wait_for(2);
  *cancelled = true;
  hosts_->open();
  const Results results = answer.get();
  ASSERT_FALSE(results.ok());
  EXPECT_EQ(results.error().code, ErrorCode::kCancelled);
  EXPECT_EQ(service->stats().decode_ns, 0u);
  EXPECT_EQ(service->stats().bytes_in_use, 0u);
}

TEST_F(MediaServiceTest, TheEndOfTheServiceAnswersEverybody) {
  auto service = make(options());
  std::vector<std::future<Results>> answers;
  for (int i = 0; i < 30; i++) answers.push_back(begin(*service, {image("gate:scene.png"), image("scene_420.jpg")}));
  hosts_->wait_for(4);
  std::thread opener([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));  // the service waits for its threads by then
    hosts_->open();
  });
  service.reset();
  opener.join();
  for (auto& answer : answers) {
    ASSERT_EQ(answer.wait_for(std::chrono::seconds(0)), std::future_status::ready);
    const Results results = answer.get();
    EXPECT_TRUE(results.ok() || results.error().code == ErrorCode::kCancelled);
  }
}

TEST_F(MediaServiceTest, ManyRequestsFromManyThreads) {
  MediaOptions own = options();
  own.processor_cache_gib = 0.001;
  own.total_bytes = own.request_bytes = size_t{12} << 20;
  own.threads = 4;
  const auto service = make(std::move(own));
  const std::vector<std::string> names{"scene.png", "cmyk.jpg", "lossy.webp", "missing", "quality1.jpg", "gray8.bmp"};
  std::vector<std::thread> clients;
  std::atomic<int> answered{0};
  for (int c = 0; c < 4; c++) {
    clients.emplace_back([&, c] {
      for (int i = 0; i < 25; i++) {
        auto cancelled = std::make_shared<std::atomic<bool>>(false);
        auto answer = begin(*service, {image(names[(c + i) % 6]), image(names[(c * i) % 5])}, c, cancelled);
        if (i % 7 == 0) *cancelled = true;
        (void)answer.get();
        answered++;
      }
    });
  }
  for (auto& client : clients) client.join();
  EXPECT_EQ(answered, 100);
}

}  // namespace
}  // namespace tern::content
