// What SIGHUP reads again for a running server.
#pragma once

#include <mutex>

#include "app/access/access.h"
#include "serve/server.h"

namespace tern::app {

class AccessReload {
 public:
  explicit AccessReload(Access access) : access_(std::move(access)) {}

  // Of the thread of signals. A file that cannot be used changes nothing; each file is one line of the log. Without a
  // server it is done once there is one.
  void reload();
  // The server that gets what is read, until detach().
  void attach(serve::Server& server);
  void detach();

 private:
  void read_all();
  void read_keys();
  void read_certificates();

  const Access access_;
  std::mutex mutex_;
  serve::Server* server_ = nullptr;
  bool asked_ = false;  // while there was no server
};

}  // namespace tern::app
