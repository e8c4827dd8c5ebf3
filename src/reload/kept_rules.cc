// SPDX-License-Identifier: Apache-2.0
#include "reload/kept_rules.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "base/digest.h"
#include "base/text.h"
#include "config/load.h"

namespace sluice::reload {
namespace {

constexpr std::string_view kHead = "sluice-rules 1 ";

std::unexpected<Error> Damaged(std::string_view what) {
  return std::unexpected(Error{ErrorCode::kInvalidInput, std::string(what)});
}

std::unexpected<Error> IoError(std::string_view path, std::string_view what) {
  const int error = errno;
  return std::unexpected(Error{
      ErrorCode::kIo, text::Cat(path, ": ", what, ": ", std::generic_category().message(error))});
}

// Removes and returns the text before `end`, and removes `end`; nothing if there is none.
std::optional<std::string_view> TakeUntil(std::string_view& text, char end) {
  const auto at = text.find(end);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view part = text.substr(0, at);
  text.remove_prefix(at + 1);
  return part;
}

std::optional<std::size_t> TakeSize(std::string_view& text, char end) {
  const auto digits = TakeUntil(text, end);
  if (!digits) return std::nullopt;
  const auto size = text::ParseInteger(*digits);
  if (!size || *size < 0 || static_cast<std::uint64_t>(*size) > kKeptBytesMax) return std::nullopt;
  return static_cast<std::size_t>(*size);
}

// Reads one document; false if there is none.
bool TakeDocument(std::string_view& text, KeptRules& kept) {
  const auto kind = TakeUntil(text, ' ');
  const auto id_size = TakeSize(text, ' ');
  const auto size = TakeSize(text, '\n');
  if (!kind || !id_size || !size || (*kind != "stored" && *kind != "good")) return false;
  if (text.size() < *id_size + *size + 1 || text[*id_size + *size] != '\n') return false;
  Documents& documents = *kind == "stored" ? kept.stored : kept.good;
  const bool is_new =
      documents
          .emplace(std::string(text.substr(0, *id_size)), std::string(text.substr(*id_size, *size)))
          .second;
  text.remove_prefix(*id_size + *size + 1);
  return is_new;
}

// A new file beside the one that it will replace; removed unless it was renamed.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& file) : path_(file + ".XXXXXX") {
    fd_ = ::mkostemp(path_.data(), O_CLOEXEC);  // Nobody else may read it.
  }
  ~TemporaryFile() {
    if (fd_ < 0) return;
    ::close(fd_);
    if (!renamed_) ::unlink(path_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  bool open() const { return fd_ >= 0; }

  bool Write(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(written));
    }
    return ::fsync(fd_) == 0;
  }

  bool RenameTo(const std::string& file) {
    renamed_ = ::rename(path_.c_str(), file.c_str()) == 0;
    return renamed_;
  }

 private:
  std::string path_;
  int fd_ = -1;
  bool renamed_ = false;
};

// Syncing the folder puts the new name on disk.
bool SyncFolderOf(const std::string& file) {
  const auto parent = std::filesystem::path(file).parent_path();
  const int folder =
      ::open(parent.empty() ? "." : parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return false;
  const bool synced = ::fsync(folder) == 0;
  ::close(folder);
  return synced;
}

}  // namespace

std::string Encode(const KeptRules& kept) {
  std::string body = text::Cat(kept.revision.ToString(), "\n");
  const auto append = [&](std::string_view kind, const Documents& documents) {
    for (const auto& [id, document] : documents) {
      body += text::Cat(kind, " ", id.size(), " ", document.size(), "\n", id, document, "\n");
    }
  };
  append("stored", kept.stored);
  append("good", kept.good);
  std::string out(kHead);
  AppendSha256(out, body);
  return text::Cat(out, "\n", body);
}

Expected<KeptRules> Decode(std::string_view text) {
  if (!text.starts_with(kHead)) return Damaged("it does not begin as such a file does");
  text.remove_prefix(kHead.size());
  const auto digest = TakeUntil(text, '\n');
  std::string expected;
  AppendSha256(expected, text);
  if (digest != expected) return Damaged("its checksum is not that of its content");
  // A right checksum means that we wrote it, or that somebody meant to: still no reason to trust
  // its lengths.
  KeptRules kept;
  const auto marker = TakeUntil(text, '\n');
  if (!marker) return Damaged("it ends early");
  if (!marker->empty()) {
    auto revision = Revision::Parse(*marker);
    if (!revision) return Damaged("its revision is not valid");
    kept.revision = *std::move(revision);
  }
  while (!text.empty()) {
    if (!TakeDocument(text, kept)) return Damaged("a document in it is not as it is written");
  }
  return kept;
}

Expected<void> Write(const KeptRules& kept, const std::string& file) {
  const std::string text = Encode(kept);
  if (text.size() > kKeptBytesMax) {
    return std::unexpected(
        Error{ErrorCode::kInvalidInput, text::Cat(file, ": the rule sets have ", text.size(),
                                                  " bytes; expected at most ", kKeptBytesMax)});
  }
  TemporaryFile temporary(file);
  if (!temporary.open()) return IoError(file, "cannot create a file beside it");
  if (!temporary.Write(text)) return IoError(file, "cannot write");
  if (!temporary.RenameTo(file)) return IoError(file, "cannot rename");
  if (!SyncFolderOf(file)) return IoError(file, "cannot sync its folder");
  return {};
}

Expected<KeptRules> Read(const std::string& file) {
  auto text = config::ReadFile(file, config::FileKind::kRegular, kKeptBytesMax);
  if (!text) return std::unexpected(text.error());
  auto kept = Decode(*text);
  if (kept) return kept;
  const std::string aside = file + ".damaged";
  const bool moved = ::rename(file.c_str(), aside.c_str()) == 0;
  return std::unexpected(
      Error{ErrorCode::kInvalidInput,
            text::Cat(file, " is damaged: ", kept.error().message,
                      moved ? "; it was set aside as " : "; it cannot be set aside as ", aside)});
}

}  // namespace sluice::reload
