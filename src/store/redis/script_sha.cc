// SPDX-License-Identifier: Apache-2.0
#include <openssl/evp.h>

#include <array>

#include "base/hex.h"
#include "store/redis/script.h"

namespace sluice::redis {

std::string ScriptSha() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned int size = 0;
  EVP_Digest(kScript.data(), kScript.size(), digest.data(), &size, EVP_sha1(), nullptr);
  std::string hex;
  for (unsigned int i = 0; i < size; ++i) text::AppendHex(hex, digest[i]);
  return hex;
}

}  // namespace sluice::redis
