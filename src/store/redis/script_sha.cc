// SPDX-License-Identifier: Apache-2.0
#include <openssl/evp.h>

#include <array>

#include "store/redis/script.h"

namespace sluice::redis {

std::string ScriptSha() {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned int size = 0;
  EVP_Digest(kScript.data(), kScript.size(), digest.data(), &size, EVP_sha1(), nullptr);
  std::string hex;
  for (unsigned int i = 0; i < size; ++i) hex += {kDigits[digest[i] >> 4], kDigits[digest[i] & 15]};
  return hex;
}

}  // namespace sluice::redis
