#define _GNU_SOURCE
/* A V4L2 capture device for a program that knows nothing of it (LD_PRELOAD): /dev/video0 is what CAMERA_FILE holds,
 * 1280x720 pixels in CAMERA_FOURCC, 30 times a second, by MMAP. As much of V4L2 as ustreamer asks for. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/videodev2.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define MOST 32
static int camera = -1;
static unsigned char *picture;
static size_t picture_bytes, buffer_bytes;
static void *buffers[MOST];
static unsigned count, queue[MOST], queued, sequence;
static unsigned width = 1280, height = 720, fourcc;

static void load(void) {
    if (picture) return;
    FILE *file = fopen(getenv("CAMERA_FILE"), "rb");
    fseek(file, 0, SEEK_END);
    picture_bytes = ftell(file);
    rewind(file);
    picture = malloc(picture_bytes);
    if (fread(picture, 1, picture_bytes, file) != picture_bytes) abort();
    fclose(file);
    const char *f = getenv("CAMERA_FOURCC");
    fourcc = v4l2_fourcc(f[0], f[1], f[2], f[3]);
    buffer_bytes = width * height * 2;
}

static int is_camera(const char *path) { return strcmp(path, "/dev/video0") == 0; }

static int make(void) {
    load();
    camera = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    return camera;
}

int open(const char *path, int flags, ...) {
    static int (*real)(const char *, int, ...);
    if (!real) real = dlsym(RTLD_NEXT, "open");
    va_list rest; va_start(rest, flags); mode_t mode = va_arg(rest, mode_t); va_end(rest);
    return is_camera(path) ? make() : real(path, flags, mode);
}
int open64(const char *path, int flags, ...) {
    static int (*real)(const char *, int, ...);
    if (!real) real = dlsym(RTLD_NEXT, "open64");
    va_list rest; va_start(rest, flags); mode_t mode = va_arg(rest, mode_t); va_end(rest);
    return is_camera(path) ? make() : real(path, flags, mode);
}

static int answer(unsigned long request, void *arg) {
    switch (request) {
    case VIDIOC_QUERYCAP: {
        struct v4l2_capability *cap = arg;
        memset(cap, 0, sizeof *cap);
        strcpy((char *)cap->driver, "file");
        cap->capabilities = V4L2_CAP_VIDEO_CAPTURE | V4L2_CAP_STREAMING;
        return 0;
    }
    case VIDIOC_S_INPUT: case VIDIOC_G_INPUT: return 0;
    case VIDIOC_G_FMT: case VIDIOC_S_FMT: {
        struct v4l2_format *format = arg;
        format->fmt.pix.width = width; format->fmt.pix.height = height; format->fmt.pix.pixelformat = fourcc;
        format->fmt.pix.field = V4L2_FIELD_NONE; format->fmt.pix.bytesperline = width * 2;
        format->fmt.pix.sizeimage = buffer_bytes; format->fmt.pix.colorspace = V4L2_COLORSPACE_JPEG;
        return 0;
    }
    case VIDIOC_G_PARM: case VIDIOC_S_PARM: {
        struct v4l2_streamparm *parm = arg;
        parm->parm.capture.capability = V4L2_CAP_TIMEPERFRAME;
        parm->parm.capture.timeperframe.numerator = 1; parm->parm.capture.timeperframe.denominator = 30;
        return 0;
    }
    case VIDIOC_REQBUFS: {
        struct v4l2_requestbuffers *req = arg;
        if (req->memory != V4L2_MEMORY_MMAP) { errno = EINVAL; return -1; }
        count = req->count > MOST ? MOST : req->count; req->count = count;
        return 0;
    }
    case VIDIOC_QUERYBUF: {
        struct v4l2_buffer *buf = arg;
        buf->length = buffer_bytes; buf->m.offset = buf->index * 0x1000; return 0;
    }
    case VIDIOC_QBUF: {
        struct v4l2_buffer *buf = arg;
        queue[queued++ % MOST] = buf->index; return 0;
    }
    case VIDIOC_DQBUF: {
        static unsigned taken;
        uint64_t ticks;
        if (taken == queued || read(camera, &ticks, sizeof ticks) != sizeof ticks) { errno = EAGAIN; return -1; }
        struct v4l2_buffer *buf = arg;
        struct timespec now; clock_gettime(CLOCK_MONOTONIC, &now);
        buf->index = queue[taken++ % MOST];
        memcpy(buffers[buf->index], picture, picture_bytes);
        buf->bytesused = picture_bytes; buf->length = buffer_bytes; buf->sequence = sequence += ticks;
        buf->flags = V4L2_BUF_FLAG_TIMESTAMP_MONOTONIC; buf->field = V4L2_FIELD_NONE;
        buf->timestamp.tv_sec = now.tv_sec; buf->timestamp.tv_usec = now.tv_nsec / 1000;
        return 0;
    }
    case VIDIOC_STREAMON: {
        struct itimerspec every = {{0, 33333333}, {0, 33333333}};
        return timerfd_settime(camera, 0, &every, NULL);
    }
    case VIDIOC_STREAMOFF: return 0;
    default: errno = EINVAL; return -1;
    }
}

int ioctl(int fd, unsigned long request, ...) {
    static int (*real)(int, unsigned long, ...);
    if (!real) real = dlsym(RTLD_NEXT, "ioctl");
    va_list rest; va_start(rest, request); void *arg = va_arg(rest, void *); va_end(rest);
    return fd == camera && fd >= 0 ? answer(request & 0xffffffff, arg) : real(fd, request, arg);
}

static void *map(size_t length, off_t offset) {
    void *memory = NULL;
    if (posix_memalign(&memory, 4096, length)) abort();
    return buffers[offset / 0x1000] = memory;
}
void *mmap(void *at, size_t length, int prot, int flags, int fd, off_t offset) {
    static void *(*real)(void *, size_t, int, int, int, off_t);
    if (!real) real = dlsym(RTLD_NEXT, "mmap");
    return fd == camera && fd >= 0 ? map(length, offset) : real(at, length, prot, flags, fd, offset);
}
void *mmap64(void *at, size_t length, int prot, int flags, int fd, off_t offset) {
    static void *(*real)(void *, size_t, int, int, int, off_t);
    if (!real) real = dlsym(RTLD_NEXT, "mmap64");
    return fd == camera && fd >= 0 ? map(length, offset) : real(at, length, prot, flags, fd, offset);
}

int access(const char *path, int mode) {
    static int (*real)(const char *, int);
    if (!real) real = dlsym(RTLD_NEXT, "access");
    return is_camera(path) ? 0 : real(path, mode);
}
