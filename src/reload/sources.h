// SPDX-License-Identifier: Apache-2.0
// Builds a catalog from the texts that people wrote.
#pragma once

#include <expected>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/problem.h"
#include "config/load.h"
#include "service/catalog.h"
#include "sluice/error.h"

namespace sluice::reload {

struct Text {
  std::string file;
  std::string content;
  friend bool operator==(const Text&, const Text&) = default;
};

// Rule sets by id, each a document of its own.
using Documents = std::map<std::string, std::string, std::less<>>;

// Documents that are not in force, and why, by id.
using Rejections = std::map<std::string, std::string, std::less<>>;

// Everything that a catalog is made from.
struct Sources {
  std::vector<Text> config;        // The configuration file, or none.
  std::vector<Text> rules;         // Files with "ruleSets:".
  std::vector<Text> rls;           // Files in the format of envoyproxy/ratelimit.
  bool rls_merge_domains = false;  // A domain may be in several of them.
  Documents managed;               // Made through the admin API.

  friend bool operator==(const Sources&, const Sources&) = default;
};

// Whether they differ at most in rule sets of the admin API.
bool SameFiles(const Sources& a, const Sources& b);

// Where to find them; empty: nowhere.
struct Places {
  std::string config;
  std::string rules;  // A file, or a folder with .yaml, .yml and .json files.
  std::string rls;
  bool rls_merge_domains = false;
};

// Reads the files of all places, those of a folder by name. A place that is a file may be of
// `kind`. Errors: kNotFound, kIo, kInvalidInput if a file is too long, of the wrong kind, or there
// are too many.
Expected<Sources> Read(const Places& places, config::FileKind kind = config::FileKind::kRegular);

struct Built {
  std::shared_ptr<service::Catalog> catalog;
  Rejections
      skipped;  // Of `managed`: a file defines them, there are too many, or they are invalid.
};

// Reports all problems of all files. Managed documents never cause one: whoever wrote them may not
// be there to fix them, and the files must not wait for that.
std::expected<Built, Problems> Build(const Sources& sources, std::uint64_t generation);

}  // namespace sluice::reload
