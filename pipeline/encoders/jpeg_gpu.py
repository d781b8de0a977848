from __future__ import annotations

from kernels import nvjpeg
from kernels.device import CudaDevice, Device
from kernels.errors import DeviceUnavailableError
from kernels.formats import I420
from pipeline.encoders.base import DeviceCoder, DeviceEncoder


class JpegGpu(DeviceEncoder):
    """JPEG by nvJPEG on the GPU: baseline, 4:2:0, BT.601 full range as JFIF says."""

    name = "jpeg_gpu"
    format = "jpg"
    media_type = "image/jpeg"
    uses_quality = True
    formats = nvjpeg.FORMATS
    planes = I420

    def absence(self, device: Device) -> str | None:
        if not isinstance(device, CudaDevice):
            return f"{device.name} is not a GPU"
        return nvjpeg.absence()

    def open(self, device: Device) -> DeviceCoder:
        if not isinstance(device, CudaDevice):
            raise DeviceUnavailableError(f"{device.name} is not a GPU")
        return nvjpeg.SharedCoder(device)
