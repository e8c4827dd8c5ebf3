// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>

#include "support/temporary_folder.h"

namespace sluice::testing_support {

// A self-signed certificate for localhost and 127.0.0.1, in a temporary folder.
class Certificate {
 public:
  Certificate() {
    const std::string command =
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 "
        "-subj /CN=localhost -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout " +
        key() + " -out " + cert() + " 2>/dev/null";
    if (std::system(command.c_str()) != 0) throw std::runtime_error("openssl made no certificate");
  }

  std::string cert() const { return folder() / "cert.pem"; }
  std::string key() const { return folder() / "key.pem"; }
  const std::filesystem::path& folder() const { return folder_.path(); }

 private:
  TemporaryFolder folder_;
};

}  // namespace sluice::testing_support
