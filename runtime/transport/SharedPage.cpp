//===- SharedPage.cpp - memory that processes of a machine share ----------===//
#include "runtime/transport/SharedPage.h"

#include <fcntl.h>
#include <random>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

namespace pipec {

SharedPage::~SharedPage() {
  forget();
  if (start)
    ::munmap(start, size);
}

std::string SharedPage::make(size_t bytes) {
  // Containers may share /dev/shm and number their processes alike.
  std::random_device chance;
  const std::string name = "/pipec-" + std::to_string(::getpid()) + "-" +
                           std::to_string(chance()) + std::to_string(chance());
  const int file =
      ::shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0)
    return "";
  made = name;
  // All of it now: a page that is missing later ends the process.
  if (::posix_fallocate(file, 0, static_cast<off_t>(bytes)) == 0)
    map(file, bytes);
  ::close(file);
  if (!start)
    forget();
  return made;
}

void SharedPage::open(const std::string &name, size_t bytes) {
  if (name.empty())
    return;
  const int file = ::shm_open(name.c_str(), O_RDWR | O_CLOEXEC, 0600);
  if (file < 0)
    return;
  map(file, bytes);
  ::close(file);
}

void SharedPage::map(int file, size_t bytes) {
  void *place =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (place != MAP_FAILED)
    start = place, size = bytes;
}

void SharedPage::forget() {
  if (!made.empty())
    ::shm_unlink(std::exchange(made, "").c_str());
}

} // namespace pipec
