from django.db import models


class Note(models.Model):
    title = models.CharField(max_length=200)
    body = models.TextField(blank=True)
    made = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-pk"]

    def as_dict(self):
        return {"id": self.pk, "title": self.title, "body": self.body}
