#include "app/access/reload.h"

#include "base/log.h"

namespace tern::app {

void AccessReload::reload() {
  const std::lock_guard lock(mutex_);
  asked_ = server_ == nullptr;
  if (!asked_) read_all();
}

void AccessReload::attach(serve::Server& server) {
  const std::lock_guard lock(mutex_);
  server_ = &server;
  if (asked_) read_all();
  asked_ = false;
}

void AccessReload::detach() {
  const std::lock_guard lock(mutex_);
  server_ = nullptr;
}

void AccessReload::read_all() {
  read_keys();
  read_certificates();
}

void AccessReload::read_keys() {
  if (access_.key_file.empty()) return;
  std::vector<std::string> warnings;
  const auto keys = access_.keys(warnings);
  if (!keys.ok()) {
    TERN_ERROR("SIGHUP: {}; the keys of before still count", keys.error().message);
    return;
  }
  server_->replace_keys(*keys);
  TERN_INFO("SIGHUP: {} was read again; {} keys count", access_.key_file, keys->size());
  for (const std::string& warning : warnings) TERN_WARN("{}", warning);
}

void AccessReload::read_certificates() {
  if (!access_.tls.wanted()) return;
  std::vector<std::string> warnings;
  auto context = access_.tls.load(warnings);
  if (!context.ok()) {
    TERN_ERROR("SIGHUP: {}; the certificate of before is still shown", context.error().message);
    return;
  }
  server_->replace_certificates(std::move(*context));
  TERN_INFO("SIGHUP: {} was read again; new connections get its certificate", access_.tls.certificate);
  for (const std::string& warning : warnings) TERN_WARN("{}", warning);
}

}  // namespace tern::app
