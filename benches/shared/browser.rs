//! What a browser sends: the twelve-header GET of `ci/bench`.

pub const GET: &[u8] = b"GET / HTTP/1.1\r\n\
    Host: 127.0.0.1:8000\r\n\
    Connection: keep-alive\r\n\
    Cache-Control: max-age=0\r\n\
    sec-ch-ua: \"Chromium\";v=\"130\", \"Not?A_Brand\";v=\"99\"\r\n\
    Upgrade-Insecure-Requests: 1\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/130.0.0.0 Safari/537.36\r\n\
    Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8\r\n\
    Sec-Fetch-Site: none\r\n\
    Sec-Fetch-Mode: navigate\r\n\
    Accept-Encoding: gzip, deflate, br, zstd\r\n\
    Accept-Language: en-GB,en;q=0.9,de;q=0.8\r\n\
    Cookie: sessionid=0123456789abcdef0123456789abcdef; csrftoken=fedcba9876543210fedcba9876543210\r\n\
    \r\n";
